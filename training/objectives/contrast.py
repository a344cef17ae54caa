"""The training objectives, as functions of embeddings. Know nothing of models, texts or devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from training.recipes import HardNegatives

MARGIN = 0.5  # alpha of T-MDE's distance constraint
EPSILON = 1e-6  # against division by zero


def info_nce(anchors: Tensor, positives: Tensor, negatives: Tensor, *, temperature: float, **candidates: Any) -> Tensor:
    """InfoNCE with in-batch and hard negatives (equation 1), one loss an anchor.

    Anchor i is drawn to positive i and away from the other positives and from its own hard negative, by cosine over
    the temperature. Equation 1 is the sum of what this returns. A document of the anchor's own concept is never its
    negative: with each concept once in the batch, as in the equation, that changes nothing.

    Args:
        anchors, positives, negatives, candidates: see `cosines`.
        temperature: tau.

    Returns:
        (batch,)
    """
    similarities, masked = cosines(anchors, positives, negatives, **candidates)
    logits = (similarities / temperature).masked_fill(masked, -torch.inf)
    return F.cross_entropy(logits, torch.arange(len(anchors), device=anchors.device), reduction="none")


def distance_constraint(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    mean: Callable[[Tensor], Tensor] = torch.mean,
    **candidates: Any,
) -> Tensor:
    """The distance constraint of T-MDE (Li 2021, equations 4.18 to 4.21 without their translation loss), one loss an
    anchor: the distance of its positive, and by how much its negatives fail to be farther away by a margin.

    Distances are squared Euclidean ones between vectors of unit length, over their mean in the batch. The margin alpha
    is the thesis' 0.5, its weight lambda 1; beta, which weighs both against the translation loss, has no part here.

    Args:
        anchors, positives, negatives, candidates: see `cosines`.
        mean: of the distances of the batch, for batches that several processes share.

    Returns:
        (batch,)
    """
    similarities, masked = cosines(anchors, positives, negatives, **candidates)
    distances = 2 - 2 * similarities
    distances = distances / (mean(distances[~masked]) + EPSILON)
    own = torch.eye(*distances.shape, dtype=torch.bool, device=distances.device)
    return nearer_than_negatives(distances, ~masked & ~own)


def nearer_than_negatives(distances: Tensor, negatives: Tensor, margin: float = MARGIN, weight: float = 1.0) -> Tensor:
    """The distance of each anchor's positive, and the mean of what its negatives lack to be farther away by a margin
    (Li 2021, equations 4.20 and 4.21).

    Args:
        distances: (batch, candidates), candidate i being the positive of anchor i.
        negatives: the same shape, bool, which candidates are negatives.
        margin: alpha.
        weight: lambda.

    Returns:
        (batch,)
    """
    of_positive = distances.diagonal()
    failings = F.relu(margin - (distances - of_positive.unsqueeze(1))) * negatives
    return of_positive + weight * failings.sum(dim=1) / negatives.sum(dim=1).clamp(min=1)


def cosines(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    concepts: Tensor,
    negative_concepts: Tensor,
    hard_negatives: HardNegatives = "own",
    others: Tensor | None = None,
    other_concepts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Each anchor beside its candidates: the positives, of which positive i is anchor i's and the others are negatives,
    and further negatives.

    Args:
        anchors, positives, negatives: (batch, hidden).
        concepts: (batch,), int64, the concept of each anchor and its positive.
        negative_concepts: (batch,), int64, that of each hard negative.
        hard_negatives: an anchor sees its own hard negative (`own`, the paper), those of the whole batch (`all`, the
            authors' code), or none.
        others: (others, hidden), negatives of every anchor from beyond the batch: other devices, a queue.
        other_concepts: (others,), int64, theirs.

    Returns:
        cosines (batch, candidates), and whether a candidate, of the anchor's own concept, is not to count (the same
        shape, bool).
    """
    anchors, positives, negatives = (F.normalize(vectors, dim=-1) for vectors in (anchors, positives, negatives))
    own = torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
    similarities = [anchors @ positives.T]
    masked = [same_concept(concepts, concepts) & ~own]
    if hard_negatives == "own":
        similarities.append((anchors * negatives).sum(dim=-1, keepdim=True))
        masked.append((concepts == negative_concepts).unsqueeze(1))
    elif hard_negatives == "all":
        similarities.append(anchors @ negatives.T)
        masked.append(same_concept(concepts, negative_concepts))
    if others is not None and other_concepts is not None:
        similarities.append(anchors @ F.normalize(others, dim=-1).T)
        masked.append(same_concept(concepts, other_concepts))
    return torch.cat(similarities, dim=1), torch.cat(masked, dim=1)


def same_concept(rows: Tensor, columns: Tensor) -> Tensor:
    """(rows,) and (columns,) -> (rows, columns), bool: whether two documents are about one concept.

    >>> same_concept(torch.tensor([1, 2]), torch.tensor([2, 3]))
    tensor([[False, False],
            [ True, False]])
    """
    return rows[:, None] == columns[None, :]
