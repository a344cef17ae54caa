"""The distance constraint of T-MDE on documents (Li 2021, equations 4.18 to 4.21 without their translation loss)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from hmde.common.numbers import PositiveFloat
from training.losses.batch import BatchVectors
from training.losses.candidates import EPSILON, Candidates, HardNegatives, cosines
from training.losses.processes import mean_of_all_processes

MARGIN = 0.5  # alpha of the thesis


@dataclass
class DistanceConstraint:
    """Draw each anchor to its positive, in place of `info_nce`."""

    weight: PositiveFloat = 1.0
    """Weight of the loss in the sum."""

    hard_negatives: HardNegatives = "own"
    """Which hard negatives an anchor sees: its own, all of the batch, or none."""

    symmetric: bool = False
    """Also from the positive to the anchors, with a hard negative of the positive."""


def distance_constraint(
    anchors: Tensor, candidates: Candidates, mean: Callable[[Tensor], Tensor] = torch.mean
) -> Tensor:
    """One loss an anchor: the distance of its positive, and by how much its negatives fail to be farther away by a
    margin.

    Distances are squared Euclidean ones between L2-normalised vectors, over their mean in the batch. The margin alpha
    is the thesis' 0.5, its weight lambda 1; beta, which weighs both against the translation loss, has no part here.

    Args:
        anchors: (batch, hidden).
        mean: of the distances of the batch, for batches that several processes share.

    Returns:
        (batch,)
    """
    similarities, masked = cosines(anchors, candidates)
    distances = 2 - 2 * similarities
    distances = distances / (mean(distances[~masked]) + EPSILON)
    own = torch.eye(*distances.shape, dtype=torch.bool, device=distances.device)
    return nearer_than_negatives(distances, ~masked & ~own)


def nearer_than_negatives(distances: Tensor, negatives: Tensor, margin: float = MARGIN, weight: float = 1.0) -> Tensor:
    """The distance of each anchor's positive, and the mean of what its negatives lack to be farther away by a margin
    (Li 2021, equations 4.20 and 4.21).

    Args:
        distances: (batch, candidates); candidate i is the positive of anchor i.
        negatives: the same shape, bool, which candidates are negatives.
        margin: alpha.
        weight: lambda.

    Returns:
        (batch,)
    """
    positive_distances = distances.diagonal()
    failings = F.relu(margin - (distances - positive_distances.unsqueeze(1))) * negatives
    return positive_distances + weight * failings.sum(dim=1) / negatives.sum(dim=1).clamp(min=1)


def distance_constraint_losses(vectors: BatchVectors, options: DistanceConstraint) -> dict[str, Tensor]:
    """The mean over anchors (`document`) and, if it is symmetric, over positives (`reverse`)."""
    documents = vectors.documents
    candidates = documents.candidates("positive", "negative", options.hard_negatives)
    losses = {"document": distance_constraint(documents.vectors["anchor"], candidates, mean_of_all_processes).mean()}
    if options.symmetric:
        candidates = documents.candidates("anchor", "positive_negative", options.hard_negatives)
        losses["reverse"] = distance_constraint(documents.vectors["positive"], candidates, mean_of_all_processes).mean()
    return losses
