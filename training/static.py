"""A static sentence encoder: no layers, so that the vector of a token is the same in every text.

It starts as Model2Vec does (Tulkens and van Dongen, 2024), with the vector that the whole encoder gives to each token
by itself, and training goes on from there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

TOKENS_AT_ONCE = 1024
SIF_COEFFICIENT = 1e-4


@torch.no_grad()
def make_static(model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer) -> None:
    """Give the word embeddings of an encoder, whose layers are then taken out, the vectors of its tokens.

    A frequent token says little, so its vector is moved towards the mean of all (SIF; Arora et al., 2017). Its
    frequency follows from its place in the vocabulary by Zipf's law, as in Model2Vec. What else the encoder adds to a
    token, such as positions, starts at 0, and its norm at the scale of the vectors. As all vectors of an encoder lie
    around their mean, far from 0, the norm changes their differences little.

    Raises:
        ValueError: modules follow the encoder, so that a sentence's vector is no mean of its tokens'.
    """
    if modules := model.config.sentence_modules:
        raise ValueError(f"layers is [], but the encoder is followed by sentence_modules, {modules}; keep some layers")
    encoder: Any = model.hmde.sentence_encoder
    words: Any = model.get_input_embeddings()
    vectors = vectors_of_tokens(model, tokenizer)
    zipf = 1 / torch.arange(1, len(vectors) + 1)
    weights = SIF_COEFFICIENT / (SIF_COEFFICIENT + zipf / zipf.sum())
    for module in encoder.modules():
        if isinstance(module, nn.Embedding):
            module.weight.zero_()
        elif isinstance(module, nn.LayerNorm):
            nn.init.constant_(module.weight, float(vectors.std(dim=1).mean()))
            nn.init.zeros_(module.bias)
    mean = vectors.mean(dim=0)
    words.weight[: len(vectors)] = mean + weights.unsqueeze(1) * (vectors - mean)


def vectors_of_tokens(model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer) -> Tensor:
    """(tokens, hidden), the sentence vector of each token of the vocabulary as a text of its own."""
    before, after = tokenizer.num_special_tokens
    frame = torch.tensor(tokenizer("")["input_ids"])
    ids = torch.arange(len(tokenizer)).unsqueeze(1)
    prefix, suffix = (part.expand(len(ids), -1) for part in (frame[:before], frame[len(frame) - after :]))
    texts = torch.cat([prefix, ids, suffix], dim=1).split(TOKENS_AT_ONCE)
    was_training = model.training
    model.eval()
    vectors = [
        model.hmde.encode_sentences(rows, sentence_ids=torch.zeros_like(rows))[1]
        for rows in tqdm(texts, desc="vectors of tokens")
    ]
    model.train(was_training)
    return torch.cat(vectors)
