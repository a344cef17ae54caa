"""A query is drawn to the document that it seeks, among those of the batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.losses.batch import BatchVectors
from training.losses.candidates import HardNegatives
from training.losses.info_nce import info_nce
from training.losses.loss import Loss, Needs


@dataclass(kw_only=True)
class Queries(Loss):
    """InfoNCE from queries to documents, which the paper leaves out. The recipe's `queries` says what they are."""

    hard_negatives: HardNegatives = "own"
    """Which hard negatives a query sees: its anchor's own, all of the batch, or none."""

    @property
    def needs(self) -> Needs:
        return Needs(queries=True)

    def __call__(self, vectors: BatchVectors) -> dict[str, Tensor]:
        """The mean over queries and over the paths by which they are encoded (`query`)."""
        candidates = vectors.documents.candidates("positive", "negative", self.hard_negatives)
        path_losses = [info_nce(queries, candidates, vectors.temperature).mean() for queries in vectors.queries]
        return {"query": torch.stack(path_losses).mean()}
