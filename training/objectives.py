"""The training objectives, as functions of embeddings. Know nothing of models, texts or devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

HardNegatives = Literal["own", "all", "none"]
DocumentObjective = Literal["info_nce", "distance_constraint"]

MARGIN = 0.5  # alpha of T-MDE's distance constraint
EPSILON = 1e-6  # against division by zero


def info_nce(
    anchors: Tensor, positives: Tensor, negatives: Tensor, *, temperature: float | Tensor, **candidates: Any
) -> Tensor:
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
    # Masked after the division, or a learned temperature would get 0 * inf for its gradient.
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
    places = torch.arange(len(anchors), device=anchors.device)
    of_positive = distances[places, places].unsqueeze(1)
    is_negative = ~masked
    is_negative[places, places] = False
    failings = F.relu(MARGIN - (distances - of_positive)) * is_negative
    return of_positive.squeeze(1) + failings.sum(dim=1) / is_negative.sum(dim=1).clamp(min=1)


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
        concepts: (batch,), int64, the concept of each anchor and its positive, or (batch, n), its concepts.
        negative_concepts: (batch,) or (batch, n), int64, those of each hard negative.
        hard_negatives: an anchor sees its own hard negative (`own`, the paper), those of the whole batch (`all`, the
            authors' code), or none.
        others: (others, hidden), negatives of every anchor from beyond the batch: other devices, a queue.
        other_concepts: (others,) or (others, n), int64, theirs.

    Returns:
        cosines (batch, candidates), and whether a candidate, of the anchor's own concept, is not to count (the same
        shape, bool).
    """
    anchors, positives, negatives = (F.normalize(vectors, dim=-1) for vectors in (anchors, positives, negatives))
    own = torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
    candidates = [(anchors @ positives.T, same_concept(concepts, concepts) & ~own)]
    if hard_negatives == "own":
        of_own_concept = same_concept(concepts, negative_concepts).diagonal().unsqueeze(1)  # where documents are mixed
        candidates.append(((anchors * negatives).sum(dim=-1, keepdim=True), of_own_concept))
    elif hard_negatives == "all":
        candidates.append((anchors @ negatives.T, same_concept(concepts, negative_concepts)))
    if others is not None and other_concepts is not None:
        candidates.append((anchors @ F.normalize(others, dim=-1).T, same_concept(concepts, other_concepts)))
    similarities, masked = (torch.cat(parts, dim=1) for parts in zip(*candidates))
    return similarities, masked


def same_concept(rows: Tensor, columns: Tensor) -> Tensor:
    """(rows, columns), bool: whether two documents share a concept. Each argument: (documents,) or (documents, n).

    >>> same_concept(torch.tensor([1, 2]), torch.tensor([[2, 3], [1, 4]]))
    tensor([[False,  True],
            [ True, False]])
    """
    rows, columns = (ids.unsqueeze(1) if ids.ndim == 1 else ids for ids in (rows, columns))
    return (rows[:, None, :, None] == columns[None, :, None, :]).any(dim=-1).any(dim=-1)
