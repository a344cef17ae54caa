"""A queue of documents from earlier batches, for more negatives (InfoXLM's cross-lingual contrast, section 3.2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class DocumentQueue:
    """The last `size` documents that the momentum encoder has embedded, the same on every process.

    Args:
        size: documents; it fills up over the first batches.
        hidden_size: width of their vectors.
        concepts_per_document: 1, or 2 where documents are mixed of two.
    """

    def __init__(self, size: int, hidden_size: int, concepts_per_document: int, device: torch.device) -> None:
        self.size = size
        self.vectors = torch.empty(0, hidden_size, device=device)
        shape = (0,) if concepts_per_document == 1 else (0, concepts_per_document)
        self.concepts = torch.empty(shape, dtype=torch.long, device=device)

    def push(self, vectors: Tensor, concepts: Tensor) -> None:
        """Add documents, the newest last. vectors: (documents, hidden); concepts: (documents,) or (documents, n)."""
        self.vectors = torch.cat([self.vectors, vectors.detach()])[-self.size :]
        self.concepts = torch.cat([self.concepts, concepts])[-self.size :]

    def state_dict(self) -> dict[str, Any]:
        return {"vectors": self.vectors, "concepts": self.concepts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.vectors = state["vectors"].to(self.vectors.device)
        self.concepts = state["concepts"].to(self.concepts.device)
