"""What is wrapped around the model in training: one forward pass over all that a batch has."""

from __future__ import annotations

from torch import nn

from modeling_hmde import HMDEForDocumentEmbedding
from training.data.kinds import DOCUMENTS, SENTENCES
from training.loop.cached_gradients import Chunk, Embeddings


class TwoPathEncoder(nn.Module):
    """Documents, and queries that are read as such, through both encoders, other queries through the sentence encoder
    alone: in one forward pass, as distributed training needs it.

    Args:
        sentences: also give the vectors of the documents' sentences (documents, sentences of the longest, hidden), 0
            where there is none.
    """

    def __init__(self, model: HMDEForDocumentEmbedding, sentences: bool = False) -> None:
        super().__init__()
        self.model = model
        self.sentences = sentences

    def forward(self, chunk: Chunk) -> Embeddings:
        embeddings: Embeddings = {}
        for kind, rows in chunk.items():
            if kind.path == "sentence_encoder":
                embeddings[kind] = self.model.hmde.rotation(self.model.hmde.encode_sentences(**rows)[1])
            elif "sentence_embeddings" in rows:
                kept = rows["sentence_embeddings"], rows["sentence_lengths"]
                embeddings[kind] = self.model.hmde.rotation(self.model.hmde.document_encoder(*kept)[1])
            else:  # queries that are read as documents too
                with_sentences = kind == DOCUMENTS and self.sentences
                output = self.model(**rows, output_sentence_vectors=with_sentences)
                embeddings[kind] = output.pooler_output
                if with_sentences:
                    embeddings[SENTENCES] = output.sentence_vectors
        return embeddings
