"""Pairs of sentences, and batches of sentences with their translations as targets."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from replications.sentences.batches import IGNORED, Rows, SentenceCollator
from replications.sentences.pairs import Pair, Pairs


class DrawnPairs(Pairs):
    """Pairs of which each gets a new seed in every epoch, so that its direction is drawn anew, and a run that goes on
    from a checkpoint draws the same.

    Args:
        seed: of all draws.
    """

    def __init__(self, folder: str | Path, split: str, *, seed: int = 0) -> None:
        super().__init__(folder, split)
        self.seed = seed

    def __getitem__(self, index: int) -> Pair:
        draw = random.Random(f"{self.seed} {self.epoch} {index}")
        return replace(super().__getitem__(index), seed=draw.getrandbits(63))

    def sentences(self, count: int) -> Iterator[str]:
        """Both sides of `count` pairs drawn by the seed; of all pairs if there are fewer."""
        drawn = np.random.default_rng(self.seed).permutation(len(self))[:count]
        for pair in self.pairs.select(np.sort(drawn)):
            yield from (pair["first"], pair["second"])


class TranslationCollator(SentenceCollator):
    """One sentence of each pair is translated into the other, if its language is a pivot. Where both can be, it is
    drawn which.

    `sentences` have `target_tokens` (rows, tokens), the whole translation, after it -100, and `target_language`
    (rows,), its place among the pivots; a row of -100 is not translated.

    Args:
        pivots: languages into which translation goes.
        both_sides: read the sentences that are not translated too, for a loss that compares vectors.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, max_length: int, pivots: Sequence[str], both_sides: bool
    ) -> None:
        super().__init__(tokenizer, max_length)
        self.pivots = list(pivots)
        self.both_sides = both_sides

    def rows(self, pairs: Sequence[Pair]) -> dict[str, Rows]:
        sides, target_sides = self.sides(pairs), self.target_sides(pairs)
        translated = [index + (1 - side) * len(pairs) for index, side in enumerate(target_sides)]
        targets = self.targets(list(zip(pairs, target_sides)))
        if self.both_sides:
            rows = self.tokenized(sides)
            targets = {name: _among(len(sides), translated, target) for name, target in targets.items()}
        else:
            rows = self.tokenized([sides[row] for row in translated])
        return {"sentences": rows | targets}

    def target_sides(self, pairs: Sequence[Pair]) -> list[int]:
        """Which side of each pair, 0 or 1, is the translation."""
        return [
            random.Random(pair.seed).choice([side for side in (0, 1) if pair.languages[side] in self.pivots])
            for pair in pairs
        ]

    def targets(self, sides: Sequence[tuple[Pair, int]]) -> Rows:
        """The `target_tokens` (translations, tokens) and `target_language` (translations,) of some sides of pairs."""
        rows = self.tokenized([(pair.first, pair.second)[side] for pair, side in sides])
        tokens = rows["input_ids"].masked_fill(rows["attention_mask"] == 0, IGNORED)
        languages = [self.pivots.index(pair.languages[side]) for pair, side in sides]
        return {"target_tokens": tokens, "target_language": torch.tensor(languages)}


def _among(num_rows: int, places: list[int], rows: Tensor) -> Tensor:
    """(rows, ...) -> (num_rows, ...), at their places among rows of -100."""
    return rows.new_full((num_rows, *rows.shape[1:]), IGNORED).index_copy(0, torch.tensor(places), rows)
