"""Pairs of sentences for losses that draw something at random, such as which word is masked. Each pair gets a new seed
in every epoch, so that a pair is not masked alike twice, and a run that goes on from a checkpoint draws the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from replications.sentences.pairs import Pair, Pairs


class DrawnPairs(Pairs):
    """
    Args:
        seed: of all draws.
    """

    def __init__(self, folder: str | Path, split: str, *, seed: int = 0) -> None:
        super().__init__(folder, split)
        self.seed = seed

    def draws(self, index: int) -> random.Random:
        """The source of all draws for a pair in this epoch."""
        return random.Random(f"{self.seed} {self.epoch} {index}")

    def __getitem__(self, index: int) -> Pair:
        return self.pair(index, self.draws(index))

    def pair(self, index: int, draw: random.Random) -> Pair:
        """The pair, with the next seed of its draws."""
        return replace(super().__getitem__(index), seed=draw.getrandbits(63))

    def sentences(self, count: int) -> Iterator[str]:
        """Both sides of `count` pairs drawn by the seed; of all pairs if there are fewer."""
        drawn = np.random.default_rng(self.seed).permutation(len(self))[:count]
        for pair in self.pairs.select(np.sort(drawn)):
            yield from (pair["first"], pair["second"])
