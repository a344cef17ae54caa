"""Europarl, the files europarl-v7.<one>-<other>.<one> and .<other> (statmt.org/europarl): 2,000 sentences among 200,000
of the other language, those that MUSE draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evaluation.datasets.languages import languages_of
from evaluation.recipes import RetrievalTask
from replications.datasets.translations import read_translations, write_translations

# As in MUSE: how many sentences are sought, and among how many; how many lines, the first of the files, these are drawn
# from; and the seed of both draws.
QUERIES, SENTENCES, LINES, SEED = 2_000, 200_000, 800_000, 1234


def convert(task: RetrievalTask, output: Path) -> None:
    for pair in task.pairs:
        query_language, document_language = sides = languages_of(pair)
        stored = {f"europarl-v7.{one}-{other}": (one, other) for one, other in (sides, sides[::-1])}
        there = (name for name in stored if (Path(task.data) / f"{name}.{query_language}").is_file())
        name = next(there, f"europarl-v7.{pair}")
        both = read_translations(*(Path(task.data) / f"{name}.{language}" for language in stored[name]))
        texts = dict(zip(stored[name], both))
        drawn = drawn_by_muse(*(text[:LINES] for text in both))
        if len(drawn) < SENTENCES:
            raise ValueError(
                f"the first {LINES} lines of {Path(task.data) / name}.* have {len(drawn)} sentences that are all "
                f"different in both languages; the task needs {SENTENCES}, so give the whole files of Europarl"
            )
        kept = drawn[:SENTENCES]
        draw = np.random.RandomState(SEED)
        sought = draw.choice(range(SENTENCES), size=QUERIES, replace=False)
        queries = {int(row): texts[query_language][kept[row]] for row in sought}
        write_translations(task, output, pair, queries, [texts[document_language][row] for row in kept])


def drawn_by_muse(first: list[str], second: list[str]) -> list[int]:
    """The lines of two files in the order in which MUSE takes them: sorted by words, then drawn. A line that repeats an
    earlier one in either language, capitals aside, is left out. The first file is that of the language that stands
    first in the files' name, whichever language seeks, so that both directions have the same sentences."""

    def unique(rows: list[int], texts: list[str]) -> list[int]:
        words = {row: "\0".join(texts[row].lower().split()) for row in rows}
        first_of: dict[str, int] = {}
        for row in rows:
            first_of.setdefault(words[row], row)
        return [first_of[key] for key in sorted(first_of)]

    rows = unique(unique(list(range(len(first))), first), second)
    return [rows[index] for index in np.random.RandomState(SEED).permutation(len(rows))]
