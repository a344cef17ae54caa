"""InfoNCE with in-batch and hard negatives (paper, equation 1): the documents of a concept are drawn together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from training.losses.batch import BatchVectors
from training.losses.candidates import Candidates, HardNegatives, cosines
from training.losses.loss import Loss, Needs


def info_nce(anchors: Tensor, candidates: Candidates, temperature: float) -> Tensor:
    """One loss an anchor, by cosine over the temperature. Equation 1 is the sum of what this returns.

    A document of the anchor's own concept is never its negative: with each concept once in the batch, as in the
    equation, that changes nothing.

    Args:
        anchors: (batch, hidden).
        temperature: tau.

    Returns:
        (batch,)
    """
    similarities, masked = cosines(anchors, candidates)
    logits = (similarities / temperature).masked_fill(masked, -torch.inf)
    return F.cross_entropy(logits, torch.arange(len(anchors), device=anchors.device), reduction="none")


@dataclass(kw_only=True)
class InfoNCE(Loss):
    """Draw each anchor to its positive and away from all other candidates."""

    hard_negatives: HardNegatives = "own"
    """Which hard negatives an anchor sees: its own (paper), all of the batch (the authors' code), or none."""

    symmetric: bool = False
    """Also seek the anchor among the anchors, from the positive, with a hard negative of the positive."""

    @property
    def needs(self) -> Needs:
        return Needs(symmetric=self.symmetric)

    def __call__(self, vectors: BatchVectors) -> dict[str, Tensor]:
        """The mean over anchors (`document`) and, if it is symmetric, over positives (`reverse`)."""
        documents = vectors.documents
        candidates = documents.candidates("positive", "negative", self.hard_negatives)
        losses = {"document": info_nce(documents.vectors["anchor"], candidates, vectors.temperature).mean()}
        if self.symmetric:
            candidates = documents.candidates("anchor", "positive_negative", self.hard_negatives)
            losses["reverse"] = info_nce(documents.vectors["positive"], candidates, vectors.temperature).mean()
        return losses
