"""Translation from an encoder's hidden states, and the distance constraint beside it (Li 2021, chapter 4)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from hmde.common.numbers import NonNegativeFloat, PositiveInt, Share
from replications.sentences.batches import IGNORED
from replications.sentences.losses import LossFunction, LossOptions, PairVectors
from training.loop.processes import mean_of_all_processes, rows_of_other_processes
from training.losses.candidates import EPSILON, same_concept

LOTS = 6364136223846793005  # odd, so that its products, modulo 2 ** 64, are a permutation of all integers


@dataclass(kw_only=True)
class Translation(LossOptions):
    """Translate one sentence of each pair into the other, whose language is a pivot."""

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


@dataclass
class OneWay:
    """The sentences of one side of a batch of pairs, and what their distances are measured to.

    Args:
        anchors, positives: (pairs, hidden); row i of the one is translated by row i of the other.
        other_positives: (others, hidden), those of other processes.
        concepts: (pairs + others,), int64, of the positives.
        languages: (pairs + others,), int64, of the positives.
    """

    anchors: Tensor
    positives: Tensor
    other_positives: Tensor
    concepts: Tensor
    languages: Tensor

    def distances(self) -> Tensor:
        """Euclidean distances, (pairs, pairs + others). The distance of equal vectors is 0, and so is its gradient;
        a matrix product would leave rounding errors, whose root is large."""
        candidates = torch.cat([self.positives, self.other_positives])
        return torch.cdist(self.anchors, candidates, compute_mode="donot_use_mm_for_euclid_dist")

    def negatives(self, count: int) -> Tensor:
        """Which sentences are the negatives of each pair: `count` drawn by lot of those in its translation's language
        that are of another concept, (pairs, pairs + others), bool."""
        pairs = len(self.anchors)
        same_language = self.languages[:pairs, None] == self.languages
        candidates = ~same_concept(self.concepts[:pairs], self.concepts) & same_language
        return drawn_by_lot(candidates, self.concepts[:pairs], self.concepts, count)


def both_ways(vectors: PairVectors) -> list[OneWay]:
    """From the first sentences to the second, and back."""
    concepts, languages = vectors.batch.concepts, vectors.batch.languages
    all_concepts, *all_languages = (torch.cat([rows, rows_of_other_processes(rows)]) for rows in (concepts, *languages))
    return [
        OneWay(
            vectors.sides[side],
            vectors.sides[1 - side],
            vectors.other_sides[1 - side],
            all_concepts,
            all_languages[1 - side],
        )
        for side in (0, 1)
    ]


def distance(way: OneWay, options: Distance) -> Tensor:
    """The distance constraint of cT-MDE and cLASER (Li 2021, equations 4.18 to 4.21 without their translation loss),
    one way: the distance of a sentence's translation, and by how much sentences drawn from those of the translation's
    language fail to be farther away by a margin.

    Distances are Euclidean, of vectors as they are, over the mean of all distances of the batch, as the thesis says;
    the authors' code takes no square either, but divides by the length of the mean vector. As in the code, both ways
    count (`distance_loss` takes their mean), and the weight lambda of the thesis is an option, where the code always
    has a half. As in neither, a sentence is no negative of its own translation.

    Returns:
        (pairs,)
    """
    distances, pairs = way.distances(), len(way.anchors)
    own = torch.eye(*distances.shape, dtype=torch.bool, device=distances.device)
    others = ~same_concept(way.concepts[:pairs], way.concepts)
    distances = distances / (mean_of_all_processes(distances[others | own]) + EPSILON)
    negatives = way.negatives(options.num_negatives)
    positives = distances.diagonal()
    failings = F.relu(options.margin - (distances - positives.unsqueeze(1))) * negatives
    return positives + options.margin_weight * failings.sum(dim=1) / negatives.sum(dim=1).clamp(min=1)


def distance_loss(vectors: PairVectors, options: Distance) -> Tensor:
    """The mean over pairs and both ways."""
    return torch.stack([distance(way, options) for way in both_ways(vectors)]).mean()


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


LOSSES: dict[str, LossFunction] = {"translation": translation_loss, "distance": distance_loss}
