"""The training objectives, as functions of embeddings. Know nothing of models, texts or devices."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

HardNegatives = Literal["own", "all", "none"]


def info_nce(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    concepts: Tensor,
    negative_concepts: Tensor,
    temperature: float,
    hard_negatives: HardNegatives = "own",
) -> Tensor:
    """InfoNCE with in-batch and hard negatives (equation 1), one loss an anchor.

    Anchor i is drawn to positive i and away from the other positives and from its own hard negative, by cosine over
    the temperature. Equation 1 is the sum of what this returns. A document of the anchor's own concept is never its
    negative: with each concept once in the batch, as in the equation, that changes nothing.

    Args:
        anchors, positives, negatives: (batch, hidden).
        concepts: (batch,), int64, the concept of each anchor and its positive.
        negative_concepts: (batch,), int64, the concept of each hard negative.
        temperature: tau.
        hard_negatives: an anchor sees its own hard negative (`own`, the paper), those of the whole batch (`all`, the
            authors' code), or none.

    Returns:
        (batch,)
    """
    anchors, positives, negatives = (F.normalize(vectors, dim=-1) for vectors in (anchors, positives, negatives))
    own = torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
    same_concept = concepts.unsqueeze(1) == concepts
    similarities = [(anchors @ positives.T).masked_fill(same_concept & ~own, -torch.inf)]
    if hard_negatives == "own":
        similarities.append((anchors * negatives).sum(dim=-1, keepdim=True))
    elif hard_negatives == "all":
        similarities.append((anchors @ negatives.T).masked_fill(concepts.unsqueeze(1) == negative_concepts, -torch.inf))
    logits = torch.cat(similarities, dim=1) / temperature
    return F.cross_entropy(logits, torch.arange(len(anchors), device=anchors.device), reduction="none")
