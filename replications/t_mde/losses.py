"""T-MDE's losses: translation, and the distance constraint beside it (Li 2021, chapter 4), each with its options."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from hmde.common.numbers import NonNegativeFloat, PositiveInt, Share
from replications.sentences.batches import IGNORED
from replications.sentences.losses import LossFunction, LossOptions, PairVectors
from training.loop.processes import rows_of_all_processes, rows_of_other_processes
from training.losses.candidates import same_concept

EPSILON = 1e-6  # against division by zero
LOTS = 6364136223846793005  # odd, so that its products, modulo 2 ** 64, are a permutation of all integers


@dataclass(kw_only=True)
class Translation(LossOptions):
    """Translate one sentence of each pair into the other, whose language is a pivot."""

    bottleneck: bool = True
    """Translate from the vector of the sentence alone. If false, the decoder sees all hidden states (T-MDE_F)."""

    pivots: list[str] = field(default_factory=lambda: ["en", "es"])
    """Languages into which translation goes. Every pair of languages has one of them at least."""

    label_smoothing: Share = 0.1
    """Share of each target that goes to all tokens of the vocabulary alike."""

    keep_decoder: bool = False
    """Save the decoder with the encoder, as decoder.safetensors. A run that starts from that folder goes on with it."""


@dataclass(kw_only=True)
class Distance(LossOptions):
    """A sentence's translation is near, and other sentences of its language are farther away by a margin."""

    num_negatives: PositiveInt = 40
    """Sentences that are to be farther away (N_s), at most: they come from the batch."""

    margin: NonNegativeFloat = 0.5
    """Margin alpha, in units of the mean distance in the batch."""

    margin_weight: NonNegativeFloat = 1.0
    """Weight of the margin beside the distance of the translation (lambda)."""


def translation_loss(vectors: PairVectors, options: Translation) -> Tensor:
    """The mean over the tokens of all translations, whose first token is given."""
    count = (vectors.batch.rows["sentences"]["target_tokens"][:, 1:] != IGNORED).sum()
    return mean_of_all_processes(vectors.embeddings["translation"].squeeze(1), count)


def distance(
    anchors: Tensor, positives: Tensor, other_positives: Tensor, concepts: Tensor, languages: Tensor, options: Distance
) -> Tensor:
    """The distance constraint of cT-MDE (Li 2021, equations 4.18 to 4.21 without their translation loss), one way: the
    distance of a sentence's translation, and by how much sentences drawn from those of the translation's language fail
    to be farther away by a margin.

    Distances are Euclidean, of vectors as they are, over the mean of all distances of the batch, as the thesis says;
    the authors' code takes no square either, but divides by the length of the mean vector. As in the code, both ways
    count (`distance_loss` takes their mean), and the weight lambda of the thesis is an option, where the code always
    has a half. As in neither, a sentence is no negative of its own translation.

    Args:
        anchors, positives: (pairs, hidden); row i of the one is translated by row i of the other.
        other_positives: (others, hidden), those of other processes.
        concepts, languages: (pairs + others,), int64, of the positives.

    Returns:
        (pairs,)
    """
    candidates, pairs = torch.cat([positives, other_positives]), len(anchors)
    # The distance of equal vectors is 0, and so is its gradient; a matrix product would leave rounding errors, whose
    # root is large.
    distances = torch.cdist(anchors, candidates, compute_mode="donot_use_mm_for_euclid_dist")
    own = torch.eye(*distances.shape, dtype=torch.bool, device=distances.device)
    others = ~same_concept(concepts[:pairs], concepts)
    distances = distances / (mean_of_all_processes(distances[others | own]) + EPSILON)
    same_language = languages[:pairs, None] == languages
    negatives = drawn_by_lot(others & same_language, concepts[:pairs], concepts, options.num_negatives)
    own_distances = distances.diagonal()
    failings = F.relu(options.margin - (distances - own_distances.unsqueeze(1))) * negatives
    return own_distances + options.margin_weight * failings.sum(dim=1) / negatives.sum(dim=1).clamp(min=1)


def distance_loss(vectors: PairVectors, options: Distance) -> Tensor:
    """The mean over pairs and both ways, from the first sentences to the second, and back."""
    rows = (vectors.batch.concepts, *vectors.batch.languages)
    concepts, *languages = (torch.cat([own, rows_of_other_processes(own)]) for own in rows)
    ways = (
        distance(
            vectors.sides[side], vectors.sides[other], vectors.other_sides[other], concepts, languages[other], options
        )
        for side, other in ((0, 1), (1, 0))
    )
    return torch.stack([*ways]).mean()


def drawn_by_lot(candidates: Tensor, rows: Tensor, columns: Tensor, count: int) -> Tensor:
    """Draw `count` of the candidates of each row, or all if there are fewer. Lots follow from the concepts alone, so
    that each process draws what one process would, and a run that resumes what it would have drawn.

    Args:
        candidates: (rows, columns), bool.
        rows, columns: their concepts, int64.

    Returns:
        (rows, columns), bool.
    """
    lots = (rows[:, None] ^ columns) * LOTS
    places = lots.masked_fill(~candidates, torch.iinfo(lots.dtype).max).argsort(dim=1).argsort(dim=1)
    return candidates & (places < count)


def mean_of_all_processes(values: Tensor, count: Tensor | int | None = None) -> Tensor:
    """(values,) -> (), the mean over the values of all processes, with its gradient. Each process may have another
    number of values.

    Args:
        count: how many terms the values of this process sum up; the number of values if not given. The mean is 0 where
            this is 0 on all processes.
    """
    own_count = torch.as_tensor(len(values) if count is None else count).to(values)
    total, whole_count = rows_of_all_processes(torch.stack([values.sum(), own_count]).unsqueeze(0)).sum(dim=0)
    return total / whole_count.clamp(min=1)


LOSSES: dict[str, LossFunction] = {"translation": translation_loss, "distance": distance_loss}
