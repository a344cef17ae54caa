"""Readers of translations: line by line (Moses), with tabs, translation memories, Parquet, and data sets of the Hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import datasets

from hmde.common.records import lines, malformed, parquet_columns, parquet_rows, unpacked
from training.corpus.recipe import SPLITS

XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


class Translation(NamedTuple):
    """A sentence and its translation, and the id and the split if their source gives them."""

    first: str
    second: str
    id: str | None = None
    split: str | None = None


def read_translations(paths: list[str], languages: str) -> Iterator[Translation]:
    """The pairs of a source, without white space around them.

    Args:
        paths: two files, line by line translations of each other; or one file, whose ending is in `READERS`; or one
            data set of the Hub.
        languages: <one>-<other>.

    Raises:
        ValueError: the source is malformed; names the file and the line.
        OSError: the Hub has no such data set, or cannot be reached.
    """
    if len(paths) == 2:
        return read_moses(*map(Path, paths))
    first, second = languages.split("-")
    if is_on_the_hub(paths):
        return read_hub_dataset(paths[0], first, second)
    return READERS[file_ending(paths[0])](Path(paths[0]), first, second)


def is_on_the_hub(paths: list[str]) -> bool:
    """Whether a source is a data set: one name, with none of the endings of `READERS`."""
    return len(paths) == 1 and not file_ending(paths[0])


def file_ending(name: str) -> str:
    return next((ending for ending in READERS if name.endswith(ending)), "")


def read_moses(first: Path, second: Path) -> Iterator[Translation]:
    """Two files. Each line is the translation of the same line of the other file."""
    for line, (one, other) in enumerate(zip_longest(lines(first), lines(second)), start=1):
        if one is None or other is None:
            raise malformed(first if one is None else second, line, "is missing, and the other file has it")
        yield Translation(one[1].strip(), other[1].strip())


def read_tsv(path: Path, *_: str) -> Iterator[Translation]:
    for number, line in lines(path):
        sides = line.split("\t")
        if len(sides) != 2:
            raise malformed(path, number, f"has {len(sides) - 1} tabs; it must have one, before the translation")
        yield Translation(*(side.strip() for side in sides))


def read_tmx(path: Path, first: str, second: str) -> Iterator[Translation]:
    """The units of a translation memory. A side that a unit lacks is empty. If a unit has several texts in a language,
    the first counts. en-GB is en."""
    with unpacked(path) as file:
        body = ElementTree.Element("body")
        try:
            for event, element in ElementTree.iterparse(file, ("start", "end")):
                if event == "start" and element.tag == "body":
                    body = element
                if event == "end" and element.tag == "tu":
                    texts: dict[str, str] = {}
                    for variant in element.iter("tuv"):
                        language = (variant.get(XML_LANGUAGE) or variant.get("lang") or "").lower().split("-")[0]
                        segment = variant.find("seg")
                        words = [] if segment is None else "".join(segment.itertext()).split()
                        texts.setdefault(language, " ".join(words))
                    yield Translation(texts.get(first, ""), texts.get(second, ""))
                    body.clear()  # otherwise all units that were read would stay in memory
        except ElementTree.ParseError as error:
            raise malformed(path, error.position[0], f"is no TMX ({error}); download or copy the file again") from None


def read_table(path: Path, *_: str) -> Iterator[Translation]:
    names = parquet_columns(path)
    sides = ["first", "second"] if "first" in names else ["english", "text"]
    if not {*sides} <= {*names}:
        raise ValueError(f"{path} has {', '.join(names)}; its columns must be first and second, or english and text")
    id_column = "id" if "id" in names else "segment_id"
    for number, row in parquet_rows(path, [*sides, id_column, "split"]):
        pair_id, split = row.get(id_column), row.get("split")
        if split not in (None, *SPLITS):
            raise malformed(path, number, f"split is {split!r}; it must be {', '.join(SPLITS)}")
        first, second = ((row[side] or "").strip() for side in sides)
        yield Translation(first, second, None if pair_id is None else str(pair_id), split)


def read_hub_dataset(name: str, first: str, second: str) -> Iterator[Translation]:
    """All pairs of all splits of a data set of the Hub; if it has a train split, of that split alone."""
    repository, _, config = name.partition(":")
    loaded = datasets.load_dataset(repository, config or None)
    splits = {"train": loaded["train"]} if "train" in loaded else loaded
    for split, table in splits.items():
        if "translation" not in table.column_names or not {first, second} <= {*table.features["translation"]}:
            raise ValueError(f"{name}, {split}: has {table.features}, no column translation of {first} and {second}")
        for row in table:
            yield Translation(*((row["translation"][language] or "").strip() for language in (first, second)))


READERS: dict[str, Callable[[Path, str, str], Iterator[Translation]]] = {
    ".tsv": read_tsv,
    ".tmx": read_tmx,
    ".tmx.gz": read_tmx,
    ".parquet": read_table,
}
