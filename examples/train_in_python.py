"""Train a multilingual document encoder from Python, on the triples of a corpus.

    python -m training.corpus --config configuration/corpora/sample.yaml     # the corpus, once
    python -m examples.train_in_python runs/e5-small runs/sample runs/my-model

Runs from a clone. What a loss of your own looks like: training/losses/info_nce.py.
"""

import sys

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from training.data.triples import Triples
from training.losses import InfoNCE, Queries
from training.train import TrainOptions, train

sentence_encoder, corpus, output = sys.argv[1:]
model = HMDEForDocumentEmbedding.from_sentence_encoder(sentence_encoder, max_sentences=64, sentence_pooling="mean")
model.get_input_embeddings().requires_grad_(False)  # languages that the corpus lacks stay where they are
tokenizer = HMDETokenizer.from_sentence_encoder(sentence_encoder, max_sentences=64)
triples = Triples(corpus, "train", symmetric=True)
losses = [InfoNCE(symmetric=True, hard_negatives="all"), Queries(weight=0.5)]
few = {
    "batch_size": 8,
    "gradient_accumulation_steps": 1,
    "epochs": 9,
    "max_steps": 20,
    "warmup_steps": 2,
    "eval_steps": 10,
}
progress = train(model, tokenizer, triples, losses, TrainOptions(output=output, learning_rate=1e-4, **few))
for step, scores in progress.history.items():
    print(f"step {step}: a document is found by one in another language with an MRR of {scores['document_mrr']:.3f}")
