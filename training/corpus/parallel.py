"""Translations from files of OPUS and others to tables of pairs.

    python -m training.corpus.parallel --output runs/parallel --files '{"en-de": ["books.en", "books.de"]}'

The two files of a pair of languages have a sentence a line, line by line translations of each other (Moses, the form in
which OPUS gives them away); one file that ends with .tsv has both in a line, with a tab between. Each pair becomes
`pairs/<one>-<other>.parquet`, which training/data/parallel.py describes. Files are read line by line; of a pair no more
than eight bytes stay in memory, by which its duplicates are known. The same files always make the same tables.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
from tqdm import tqdm

from foundation.command_line import options_from
from foundation.files import folder_written_whole, write_json
from training.corpus.progress import SECONDS

SCHEMA = pa.schema([(name, pa.string()) for name in ("id", "first", "second", "split")])
ROWS_AT_ONCE = 50_000


@dataclass(kw_only=True)
class ParallelRecipe:
    """Translations from files to tables of pairs."""

    output: str
    """Folder of the tables, and of `statistics.json`."""

    files: dict[str, list[str]]
    """By pair of languages, such as en-de: two files, line by line translations of each other, or one that ends with
    .tsv."""

    max_length_ratio: float = 9.0
    """A pair of which one side has more than this many times the characters of the other is left out."""

    dev_share: float = 0.01
    """Of the sentences of the first language, drawn by their text, with all their translations."""

    test_share: float = 0.01
    """Likewise, of those that are never trained on."""

    def __post_init__(self) -> None:
        if Path(self.output).exists():
            raise ValueError(f"{self.output} exists; remove it, or name another output")
        if not self.files:
            raise ValueError("files is empty; it must name the files of a pair of languages, such as en-de")
        for languages, paths in self.files.items():
            if languages.count("-") != 1:
                raise ValueError(f"files has {languages!r}; a pair of languages is written <one>-<other>")
            if len(paths) != 2 and not (len(paths) == 1 and paths[0].endswith(".tsv")):
                raise ValueError(f"{languages} has the files {paths}; it must have two, or one that ends with .tsv")
            for path in paths:
                if not Path(path).is_file():
                    raise ValueError(f"{languages}: there is no file {path}")
        if self.max_length_ratio < 1:
            raise ValueError(f"max_length_ratio is {self.max_length_ratio}; it must be at least 1")
        if min(self.dev_share, self.test_share) < 0 or self.dev_share + self.test_share >= 1:
            raise ValueError(
                f"dev_share is {self.dev_share} and test_share {self.test_share}; both must be at least 0, and below 1 "
                "together"
            )


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(ParallelRecipe, argv)
    with folder_written_whole(recipe.output) as folder:
        (folder / "pairs").mkdir()
        statistics = {
            languages: dict(write_table(recipe, languages, folder / "pairs" / f"{languages}.parquet"))
            for languages in recipe.files
        }
        write_json(folder / "statistics.json", statistics)


def write_table(recipe: ParallelRecipe, languages: str, path: Path) -> Counter[str]:
    """Returns how many pairs were written to each split, and how many were left out for which reason."""
    counts: Counter[str] = Counter()
    seen: set[bytes] = set()
    rows: list[tuple[str, str, str, str]] = []
    pairs = translations(recipe.files[languages])
    with parquet.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for first, second in tqdm(pairs, languages, unit="pair", delay=SECONDS, disable=None):
            reason = fault(first, second, recipe.max_length_ratio)
            pair = digest_of(f"{first}\t{second}")
            if reason is None and pair in seen:
                reason = "duplicate"
            if reason is not None:
                counts[reason] += 1
                continue
            seen.add(pair)
            rows.append((digest_of(first).hex(), first, second, split_of(first, recipe)))
            counts[rows[-1][-1]] += 1
            if len(rows) == ROWS_AT_ONCE:
                writer.write_table(table_of(rows))
                rows = []
        writer.write_table(table_of(rows))
    return counts


def translations(paths: list[str]) -> Iterator[tuple[str, str]]:
    """The pairs of one or two files, without white space around them.

    Raises:
        ValueError: one file has fewer lines than the other, or a line is not UTF-8 or has not one tab; names it.
    """
    if len(paths) == 1:
        for line_number, line in enumerate(lines_of(paths[0]), start=1):
            if line.count("\t") != 1:
                raise ValueError(
                    f"{paths[0]}, line {line_number}: there are {line.count(chr(9))} tabs; a line must have one, "
                    "between a sentence and its translation"
                )
            first, second = line.split("\t")
            yield first.strip(), second.strip()
        return
    for line_number, (one, other) in enumerate(zip_longest(*map(lines_of, paths)), start=1):
        if one is None or other is None:
            shorter = paths[0] if one is None else paths[1]
            raise ValueError(
                f"{shorter} ends before line {line_number}, which {' and '.join(set(paths) - {shorter})} has; the two "
                "must have as many lines, translations of each other"
            )
        yield one.strip(), other.strip()


def lines_of(path: str) -> Iterator[str]:
    with open(path, "rb") as file:
        for line_number, line in enumerate(file, start=1):
            try:
                yield line.decode("utf-8").removesuffix("\n")
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}, line {line_number}: {error}; convert the file to UTF-8") from error


def fault(first: str, second: str, max_length_ratio: float) -> str | None:
    """Why a pair is left out; None if it is not."""
    if not first or not second:
        return "empty side"
    if first == second:
        return "same sentence on both sides"
    if max(len(first), len(second)) > max_length_ratio * min(len(first), len(second)):
        return "length ratio"
    return None


def split_of(first: str, recipe: ParallelRecipe) -> str:
    """The same for a sentence in every table."""
    drawn = int.from_bytes(digest_of(f"split {first}"), "big") / 2**64
    if drawn < recipe.dev_share:
        return "dev"
    return "test" if drawn < recipe.dev_share + recipe.test_share else "train"


def digest_of(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def table_of(rows: list[tuple[str, str, str, str]]) -> pa.Table:
    columns = [[row[index] for row in rows] for index in range(len(SCHEMA))]
    return pa.table([pa.array(column, pa.string()) for column in columns], schema=SCHEMA)


if __name__ == "__main__":
    main()
