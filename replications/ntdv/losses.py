"""NTDV's distance constraint (Li 2021, section 3.2), beside the translation of both ways."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from hmde.common.numbers import NonNegativeFloat, PositiveInt
from replications.sentences.losses import LossFunction, LossOptions, PairVectors
from replications.translation.losses import OneWay, both_ways, translation_loss
from training.loop.processes import mean_of_all_processes


@dataclass(kw_only=True)
class BothWays(LossOptions):
    """Translate both sentences of each pair into each other."""


@dataclass(kw_only=True)
class SquaredDistance(LossOptions):
    """Other sentences of the translation's language are farther away than it is, by squared distances (cNV)."""

    margin: NonNegativeFloat
    """Margin alpha: the penalty of a negative at the translation's own distance (2 * sqrt(state_size))."""

    num_negatives: PositiveInt = 20
    """Sentences that are to be farther away (N_s), at most: they come from the batch."""


@dataclass(kw_only=True)
class NTDVLosses:
    """The losses whose weighted sum is minimised. One that is null is left out."""

    translation: BothWays = field(default_factory=BothWays)
    """Sentences are translated from their context vectors (NV)."""

    squared_distance: SquaredDistance | None = None
    """The distance constraint (cNV)."""


def squared_distance(way: OneWay, norm: Tensor, options: SquaredDistance) -> Tensor:
    """The distance constraint of cNV (equations 3.6 and 3.7, and the sum over N_s in 3.8), one way. Negatives of each
    pair are drawn from the sentences of the translation's language. Each costs the more, the nearer it is, and nothing
    where it is farther away than the translation by enough.

    The Frobenius norm of a matrix of context vectors is the length of these end to end, so vectors are taken here. As
    printed, a squared distance is divided by twice the mean length, which is not squared, so that longer vectors meet
    the constraint more easily. As in `replications.translation.losses.distance` both ways count, where the thesis has
    one, and a sentence is no negative of its own translation.

    Args:
        norm: mean length of the vectors of all processes, (), the same for both ways.

    Returns:
        (pairs,)
    """
    distances = way.distances().square()
    differences = distances.diagonal().unsqueeze(1) - distances
    costs = F.relu(options.margin + options.margin * differences / (2 * norm + 1))
    return (costs * way.negatives(options.num_negatives)).sum(dim=1)


def squared_distance_loss(vectors: PairVectors, options: SquaredDistance) -> Tensor:
    """The mean over pairs and both ways."""
    norm = mean_of_all_processes(torch.cat(vectors.sides).norm(dim=1))
    return torch.stack([squared_distance(way, norm, options) for way in both_ways(vectors)]).mean()


LOSSES: dict[str, LossFunction] = {"translation": translation_loss, "squared_distance": squared_distance_loss}
