"""The lightweight encoder's losses: the generative task and sentence similarity. Sentence alignment is the core's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from replications.sentences.losses import Align, Distillation, LossFunction, LossOptions, PairVectors

SHRINK = 0.999  # of differences in equation 6, whose logarithm of a cosine is infinite at 1

GenerativeTask = Literal["ugt", "smlm", "xtr"]


@dataclass(kw_only=True)
class Generative(LossOptions):
    """Predict words from a sentence's vector (equations 1 to 4)."""

    task: GenerativeTask = "ugt"
    """Which words: a masked word of the sentence and the words of its translation (ugt), or one of the two parts of
    that, the masked word (smlm) or the words of the translation (xtr)."""


@dataclass(kw_only=True)
class Similarity(LossOptions):
    """Two sentences are as similar as their translations are (equation 6)."""


@dataclass(kw_only=True)
class LightweightLosses:
    """The losses whose weighted sum is minimised. One that is null is left out."""

    generative: Generative | None = None
    """Words are predicted from a sentence's vector."""

    align: Align | None = None
    """Translations are drawn together, and away from other sentences (equation 5)."""

    similarity: Similarity | None = None
    """Sentences are as similar as their translations are."""

    distillation: Distillation | None = None
    """A teacher's vectors are learned. Not in the paper; see replications/sentences/README.md."""


def words_from_vectors(logits: Tensor, target_ids: Tensor, target_shares: Tensor) -> Tensor:
    """The divergence of the words predicted from a sentence's vector from those it is to predict (equations 1 to 4;
    `word_targets` says which those are).

    KL(target || prediction), as in the authors' code; equation 2 has the arguments in the other order, which would be
    infinite, since most words have no share in the target.

    Args:
        logits: (sentences, vocabulary).
        target_ids: (sentences, targets), int64; an id may stand there more than once.
        target_shares: (sentences, targets), which add up to 1, or are all 0 where there is nothing to predict.

    Returns:
        (sentences,)
    """
    log_predicted = F.log_softmax(logits.float(), dim=-1)
    target = torch.zeros_like(log_predicted).scatter_add(1, target_ids, target_shares.float())
    return (torch.xlogy(target, target) - target * log_predicted).sum(dim=1)


def similarity(first: Tensor, second: Tensor, other_first: Tensor, other_second: Tensor) -> Tensor:
    """Sentence similarity (equation 6).

    The sum over the sentences that one is compared with, of which a mean over sentences is taken, as of equation 5; so
    both are on the scale that they have in the paper. The authors' code takes the sum over both, but of equation 5 the
    mean. Differences are shrunk by a thousandth, which keeps the loss below 6.5 a difference and its gradient finite.

    Args:
        first, second: (pairs, hidden).
        other_first, other_second: (others, hidden), the sentences of other processes.

    Returns:
        (pairs,)
    """
    first_shares = torch.softmax(first @ torch.cat([first, other_first]).T, dim=1)
    differences = first_shares - torch.softmax(second @ torch.cat([second, other_second]).T, dim=1)
    return -(math.pi / 2 * SHRINK * differences).cos().log().sum(dim=1)


def generative_loss(vectors: PairVectors, options: Generative) -> Tensor:
    """The mean over pairs; both sentences of a pair add up, as in equation 2."""
    return 2 * vectors.embeddings["divergences"].mean()


def similarity_loss(vectors: PairVectors, options: Similarity) -> Tensor:
    """The mean over pairs."""
    return similarity(*vectors.sides, *vectors.other_sides).mean()


LOSSES: dict[str, LossFunction] = {"generative": generative_loss, "similarity": similarity_loss}
