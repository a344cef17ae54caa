"""What an anchor is compared with: its positive, the other positives of the batch, hard negatives, and documents of
other processes."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

HardNegatives = Literal["own", "all", "none"]


class Candidates(NamedTuple):
    """The candidates of each anchor of a batch.

    Args:
        positives: (batch, hidden); positive i belongs to anchor i and is a negative of the other anchors.
        negatives: (batch, hidden), the hard negative of each anchor.
        concepts: (batch,), int64, the concept of each anchor and its positive.
        negative_concepts: (batch,), int64, that of each hard negative.
        hard_negatives: an anchor sees its own hard negative (`own`, the paper), those of the whole batch (`all`, the
            authors' code), or none.
        others: (others, hidden) and (others,), int64: negatives of every anchor from beyond the batch, and their
            concepts. They come from other processes.
    """

    positives: Tensor
    negatives: Tensor
    concepts: Tensor
    negative_concepts: Tensor
    hard_negatives: HardNegatives = "own"
    others: tuple[Tensor, Tensor] | None = None


def cosines(anchors: Tensor, candidates: Candidates) -> tuple[Tensor, Tensor]:
    """Each anchor (batch, hidden) beside its candidates, of which the first `batch` are the positives.

    Returns:
        cosines (batch, candidates), and whether a candidate does not count because it is about the anchor's own concept
        (the same shape, bool).
    """
    concepts = candidates.concepts
    anchors, positives, negatives = (
        F.normalize(vectors, dim=-1) for vectors in (anchors, candidates.positives, candidates.negatives)
    )
    own = torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
    similarities = [anchors @ positives.T]
    masked = [same_concept(concepts, concepts) & ~own]
    if candidates.hard_negatives == "own":
        similarities.append((anchors * negatives).sum(dim=-1, keepdim=True))
        masked.append((concepts == candidates.negative_concepts).unsqueeze(1))
    elif candidates.hard_negatives == "all":
        similarities.append(anchors @ negatives.T)
        masked.append(same_concept(concepts, candidates.negative_concepts))
    if candidates.others is not None:
        others, other_concepts = candidates.others
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
