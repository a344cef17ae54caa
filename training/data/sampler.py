"""Which examples make a batch: drawn anew in every epoch, from the seed alone, so a run can go on at any step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def batches_of_epoch(
    language_pairs: npt.ArrayLike, batch_size: int, *, epoch: int, seed: int, language_exponent: float = 1.0
) -> np.ndarray:
    """The examples of each batch of an epoch, each batch full; the few that are left over change with the epoch.

    Args:
        language_pairs: (examples,), the languages of each example, by name or id.
        batch_size: examples of a batch, over all processes.
        epoch, seed: of the draw.
        language_exponent: a pair of n examples is drawn with a chance in proportion to n to this power: 1 takes each
            example once, 0 takes all pairs alike. The epoch stays as long.

    Returns:
        (batches, batch_size), int64, indices of examples.

    Raises:
        ValueError: a batch is larger than the epoch.
    """
    random = np.random.default_rng([seed, epoch])
    order = _draw_languages(np.asarray(language_pairs), language_exponent, random)
    num_batches = len(order) // batch_size
    if not num_batches:
        raise ValueError(
            f"a batch of {batch_size} examples over all processes is more than there are: {len(order)} examples; lower "
            "batch_size or the number of processes"
        )
    batches = order[: num_batches * batch_size].reshape(num_batches, batch_size)
    return random.permutation(batches)  # a second time, so that a seed gives the batches it always gave


def _draw_languages(language_pairs: np.ndarray, exponent: float, random: np.random.Generator) -> np.ndarray:
    """(examples,), indices of examples in random order."""
    if exponent == 1:
        return random.permutation(len(language_pairs))
    pairs, counts = np.unique(language_pairs, return_counts=True)
    chances = counts**exponent / (counts**exponent).sum()
    drawn = []
    for pair, count in zip(pairs, random.multinomial(len(language_pairs), chances)):
        examples = np.flatnonzero(language_pairs == pair)
        passes = [random.permutation(examples) for _ in range(-(-count // len(examples)))]
        drawn.append(np.concatenate([*passes, examples[:0]])[:count])
    return random.permutation(np.concatenate(drawn))
