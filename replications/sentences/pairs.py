"""Pairs of sentences that are translations of each other, read from a folder of parallel text.

The folder has one table for each pair of languages, `pairs/<one>-<other>.parquet`, with the columns

    id      of the pair; the same where the sentence is the same in several tables, such as an English one
    first   the sentence in the one language
    second  its translation into the other
    split   train, dev or test
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import torch
from datasets import Dataset, concatenate_datasets, load_dataset

from hmde.common.fingerprints import digest, fingerprint
from hmde.common.records import malformed, parquet_columns
from training.data.articles import rows_of_split

COLUMNS = ["id", "first", "second", "split"]


@dataclass(frozen=True)
class Pair:
    """A pair of sentences that are translations of each other.

    Args:
        id: of the pair; the same for pairs whose sentences are.
        name: for messages.
        first, second: the sentences.
        languages: their languages.
        seed: of what is drawn for the pair's rows, if anything is. Each pair of a split has its own.
    """

    id: str
    name: str
    first: str
    second: str
    languages: tuple[str, str]
    seed: int = 0


class Pairs(torch.utils.data.Dataset):
    """The pairs of one split, of all languages one after another, memory-mapped.

    Args:
        folder: of parallel text.
        split: train, dev or test.

    Raises:
        ValueError: the folder has no pair of this split, a table lacks a column, or a side is empty; names the file and
            the row.
    """

    def __init__(self, folder: str | Path, split: str) -> None:
        tables = {path.stem: read_pairs(path, split) for path in pair_files(Path(folder))}
        tables = {languages: table for languages, table in tables.items() if len(table)}
        if not tables:
            raise ValueError(f"{Path(folder) / 'pairs'} has no pair of split {split!r}")
        self.languages = list(tables)
        self.ends = np.cumsum([len(table) for table in tables.values()])
        self.pairs = concatenate_datasets(list(tables.values()))
        self.folder = Path(folder)
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.pairs)

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of all that is trained on, word for word."""
        return fingerprint(*((path.name, digest(path)) for path in pair_files(self.folder)))

    def language_pairs(self) -> np.ndarray:
        """(pairs,), an id for each pair of languages."""
        return np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, index: int) -> Pair:
        languages, row = self.languages[self.table_index(index)], self.pairs[index]
        one, _, other = languages.partition("-")
        return Pair(row["id"], f"{row['id']} ({languages})", row["first"], row["second"], (one, other), seed=index)

    def table_index(self, index: int) -> int:
        """Which of `languages` a pair is of."""
        return int(np.searchsorted(self.ends, index, side="right"))


class DevPairs:
    """Dev pairs, whose translations are sought among the sentences of their table.

    Args:
        folder: of parallel text.
        count: pairs of each table at most, drawn by the seed.

    Raises:
        ValueError: there is no pair of the dev split.
    """

    def __init__(self, folder: str | Path, count: int, seed: int) -> None:
        self.pairs = Pairs(folder, "dev")
        random_order = np.random.default_rng(seed).permutation(len(self.pairs))
        tables = self.pairs.language_pairs()[random_order]
        self.rows = {
            languages: np.sort(random_order[tables == table][:count])
            for table, languages in enumerate(self.pairs.languages)
        }

    def evaluate(self, encode: Callable[[list[str]], np.ndarray]) -> dict[str, float]:
        """P@1: the share of sentences whose nearest one by cosine, of those of the other side, is their translation.
        There is a score of each table, both ways, and one of all sentences, `p_at_1`, which chooses the best model. A
        table of few pairs, whose score is mostly chance, has little weight in it.

        Args:
            encode: sentences to vectors (sentences, hidden), of any length.
        """
        scores = {}
        for languages, rows in self.rows.items():
            pairs = self.pairs.pairs.select(rows)
            scores[f"{languages}_p_at_1"] = precision_at_1(encode(pairs["first"][:]), encode(pairs["second"][:]))
        return scores | {"p_at_1": float(np.average([*scores.values()], weights=[*map(len, self.rows.values())]))}


def precision_at_1(first: np.ndarray, second: np.ndarray) -> float:
    """(pairs, hidden) twice -> the share of vectors whose nearest one of the other side, by cosine, is their pair's,
    mean of both ways.

    >>> precision_at_1(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[3.0, 1.0], [1.0, 0.0]]))
    0.25
    """
    first, second = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (first, second))
    cosines = first @ second.T
    own = np.arange(len(first))
    return float(np.mean([cosines.argmax(axis=1) == own, cosines.argmax(axis=0) == own]))


def pair_files(folder: Path) -> list[Path]:
    """The tables of a folder of parallel text.

    Raises:
        ValueError: there is none.
    """
    if files := sorted((folder / "pairs").glob("*.parquet")):
        return files
    raise ValueError(f"{folder} has no pairs/<one>-<other>.parquet, which replications.sentences.corpus makes")


def read_pairs(path: Path, split: str) -> Dataset:
    """The pairs of a split.

    Raises:
        ValueError: the table lacks a column, or one holds no strings, or a side is empty.
    """
    if missing := sorted({*COLUMNS} - {*parquet_columns(path)}):
        raise ValueError(f"{path} has no column {', '.join(missing)}; it must have {', '.join(COLUMNS)}")
    table = load_dataset("parquet", data_files=str(path), columns=COLUMNS, split="train")
    if wrong := [name for name in COLUMNS if table.features[name].dtype not in ("string", "large_string")]:
        raise ValueError(f"{path}: {', '.join(wrong)} must hold strings; write the table anew")
    for side in ("first", "second"):
        is_text = pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(table.data.column(side))), 0)
        row = pc.index(pc.fill_null(is_text, False), False).as_py()
        if row >= 0:
            raise malformed(path, row + 1, f"{side} is empty; remove the pair")
    return rows_of_split(table, split)
