"""Europarl, the files europarl-v7.<one>-<other>.<one> and .<other> (statmt.org/europarl): 2,000 sentences among 200,000
of the other language, those that MUSE draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evaluation.datasets.languages import languages_of
from evaluation.recipes import RetrievalTask
from replications.datasets.translations import read_translations, write_translations

# Sentences that are sought, those that they are sought among, and the seed of both draws in MUSE.
QUERIES, SENTENCES, SEED = 2_000, 200_000, 1234


def convert(task: RetrievalTask, output: Path) -> None:
    for pair in task.pairs:
        sides = languages_of(pair)
        names = [f"europarl-v7.{one}-{other}" for one, other in (sides, sides[::-1])]
        name = next((name for name in names if (Path(task.data) / f"{name}.{sides[0]}").is_file()), names[0])
        texts = read_translations(*(Path(task.data) / f"{name}.{language}" for language in sides))
        drawn = drawn_by_muse(*texts)
        if len(drawn) < SENTENCES:
            raise ValueError(
                f"{Path(task.data) / name}.* have {len(drawn)} sentences that are all different in both languages; the "
                f"task needs {SENTENCES}, so give the whole files of Europarl"
            )
        kept = drawn[:SENTENCES]
        draw = np.random.RandomState(SEED)
        sought = draw.choice(range(SENTENCES), size=QUERIES, replace=False)
        queries = {int(row): texts[0][kept[row]] for row in sought}
        write_translations(task, output, pair, queries, [texts[1][row] for row in kept])


def drawn_by_muse(first: list[str], second: list[str]) -> list[int]:
    """The lines of two files in the order in which MUSE takes them, without those that repeat an earlier one in either
    language but for capitals: sorted by words, then drawn."""

    def unique(rows: list[int], texts: list[str]) -> list[int]:
        words = {row: "\0".join(texts[row].lower().split()) for row in rows}
        first_of: dict[str, int] = {}
        for row in rows:
            first_of.setdefault(words[row], row)
        return [first_of[key] for key in sorted(first_of)]

    rows = unique(unique(list(range(len(first))), first), second)
    return [rows[index] for index in np.random.RandomState(SEED).permutation(len(rows))]
