"""Readers of translations: line by line (Moses), with tabs, and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from hmde.common.records import lines, malformed, parquet_columns, parquet_rows
from training.corpus.recipe import SPLITS


class Translation(NamedTuple):
    """A sentence and its translation, and the id and the split if their source gives them."""

    first: str
    second: str
    id: str | None = None
    split: str | None = None


def read_translations(paths: list[str]) -> Iterator[Translation]:
    """The pairs of a source, without white space around them.

    Args:
        paths: two files, line by line translations of each other; or one file, whose ending is in `READERS`.

    Raises:
        ValueError: the source is malformed; names the file and the line.
    """
    if len(paths) == 2:
        return read_moses(*map(Path, paths))
    return READERS[Path(paths[0]).suffix](Path(paths[0]))


def read_moses(first: Path, second: Path) -> Iterator[Translation]:
    """Two files. Each line is the translation of the same line of the other file."""
    for line, (one, other) in enumerate(zip_longest(lines(first), lines(second)), start=1):
        if one is None or other is None:
            raise malformed(first if one is None else second, line, "is missing, and the other file has it")
        yield Translation(one[1].strip(), other[1].strip())


def read_tsv(path: Path) -> Iterator[Translation]:
    for number, line in lines(path):
        sides = line.split("\t")
        if len(sides) != 2:
            raise malformed(path, number, f"has {len(sides) - 1} tabs; it must have one, before the translation")
        yield Translation(*(side.strip() for side in sides))


def read_table(path: Path) -> Iterator[Translation]:
    sides, names = ("first", "second"), parquet_columns(path)
    if not {*sides} <= {*names}:
        raise ValueError(f"{path} has {', '.join(names)}; its columns must be first and second")
    for number, row in parquet_rows(path, [*sides, "id", "split"]):
        pair_id, split = row.get("id"), row.get("split")
        if split not in (None, *SPLITS):
            raise malformed(path, number, f"split is {split!r}; it must be {', '.join(SPLITS)}")
        first, second = ((row[side] or "").strip() for side in sides)
        yield Translation(first, second, None if pair_id is None else str(pair_id), split)


READERS: dict[str, Callable[[Path], Iterator[Translation]]] = {".tsv": read_tsv, ".parquet": read_table}
