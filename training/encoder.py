"""What is wrapped around the model in training: one forward pass over all that a batch has."""

from __future__ import annotations

from torch import nn

from modeling_hmde import HMDEForDocumentEmbedding
from training.loop.cached_gradients import Chunk, Embeddings


class TwoPathEncoder(nn.Module):
    """Documents, and queries that are read as such, through both encoders, other queries through the sentence encoder
    alone: in one forward pass, as distributed training needs it."""

    def __init__(self, model: HMDEForDocumentEmbedding) -> None:
        super().__init__()
        self.model = model

    def forward(self, chunk: Chunk) -> Embeddings:
        embeddings: Embeddings = {}
        for kind, rows in chunk.items():
            if kind.path == "sentence_encoder":
                embeddings[kind] = self.model.hmde.rotation(self.model.hmde.encode_sentences(**rows)[1])
            elif "sentence_embeddings" in rows:
                kept = rows["sentence_embeddings"], rows["sentence_lengths"]
                embeddings[kind] = self.model.hmde.rotation(self.model.hmde.document_encoder(*kept)[1])
            else:  # queries that are read as documents too
                embeddings[kind] = self.model(**rows).pooler_output
        return embeddings
