"""Which triples make a batch: drawn anew in every epoch from the seed alone, so that any place can be found again."""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt

logger = logging.getLogger(__name__)

# Batches among whose triples those of like length are brought together. Many, and a batch is still a random draw.
BATCHES_PER_GROUPING = 50


def batches_of_epoch(
    language_pairs: npt.ArrayLike,
    batch_size: int,
    *,
    epoch: int,
    seed: int,
    lengths: np.ndarray | None = None,
    same_languages: bool = False,
    language_exponent: float = 1.0,
) -> np.ndarray:
    """The triples of each batch of an epoch, each batch full; the few that are left over change with the epoch.

    Args:
        language_pairs: (triples,), the languages of each triple, by name or number.
        batch_size: triples of a batch, over all processes.
        epoch, seed: of the draw.
        lengths: (triples,); if given, triples of like length share a batch.
        same_languages: all triples of a batch are of one language pair.
        language_exponent: a pair of n triples is drawn with a chance in proportion to n to this power: 1 takes each
            triple once, 0 takes all pairs alike. The epoch stays as long.

    Returns:
        (batches, batch_size), int64.

    Raises:
        ValueError: a batch is larger than the epoch.
    """
    random = np.random.default_rng([seed, epoch])
    language_pairs = np.asarray(language_pairs)
    order = _draw_languages(language_pairs, language_exponent, random)
    if same_languages:
        drawn_pairs = language_pairs[order]
        groups = [order[drawn_pairs == pair] for pair in np.unique(drawn_pairs)]
    else:
        groups = [order]
    batches = np.concatenate([_cut(group, batch_size, lengths) for group in groups])
    if not len(batches):
        raise ValueError(
            f"a batch of {batch_size} triples over all processes is more than there is: {len(order)} triples in "
            f"{len(groups)} group{'s' * (len(groups) > 1)}; lower batch_size or the number of processes"
            + (", or leave out same_languages" if same_languages else "")
        )
    return random.permutation(batches)


def _draw_languages(language_pairs: np.ndarray, exponent: float, random: np.random.Generator) -> np.ndarray:
    """As many triples as there are, in random order."""
    if exponent == 1:
        return random.permutation(len(language_pairs))
    pairs, counts = np.unique(language_pairs, return_counts=True)
    chances = counts**exponent / (counts**exponent).sum()
    drawn = []
    for pair, number in zip(pairs, random.multinomial(len(language_pairs), chances)):
        triples = np.flatnonzero(language_pairs == pair)
        passes = [random.permutation(triples) for _ in range(-(-number // len(triples)))]
        drawn.append(np.concatenate([*passes, triples[:0]])[:number])
    return random.permutation(np.concatenate(drawn))


def _cut(order: np.ndarray, batch_size: int, lengths: np.ndarray | None) -> np.ndarray:
    """(batches, batch_size). Within a stretch of many batches the longest come first."""
    if lengths is not None:
        stretch = BATCHES_PER_GROUPING * batch_size
        stretches = [order[first : first + stretch] for first in range(0, len(order), stretch)]
        order = np.concatenate([part[np.argsort(-lengths[part], kind="stable")] for part in stretches])
    full = len(order) // batch_size
    return order[: full * batch_size].reshape(full, batch_size)
