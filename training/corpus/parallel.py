"""Translations from files of OPUS, of others and of the Hub to tables of pairs.

    python -m training.corpus.parallel --output runs/parallel --files '{"en-de": ["books.en", "books.de"]}'

Of each pair of languages there is a list of

    books.en, books.de    two files, line by line translations of each other (Moses, a form in which OPUS gives them)
    books.tsv             both in a line, with a tab between
    books.tmx             or books.tmx.gz: translation memories (the other form of OPUS)
    books.parquet         a table with the columns first and second, or english and text where English is the first; its
                          split and its id or segment_id, where it has them, are kept
    owner/name:config     a data set of the Hub with a column `translation`, as Helsinki-NLP/opus-100:de-en

and it becomes `pairs/<one>-<other>.parquet`, which training/data/parallel.py describes. All is read piece by piece, and
DuckDB, which goes to disk beyond its memory limit, takes out the duplicates. The finished pairs of a stopped run are
kept in `<output>.steps`, from where the same command goes on. The same files always make the same tables.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import datasets
import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet
from huggingface_hub import DatasetCard, DatasetCardData
from tqdm import tqdm

from common.command_line import options_from
from common.files import file_written_whole, folder_written_whole, locked, write_json
from training.corpus.progress import SECONDS
from training.corpus.sql import quoted, readable
from training.corpus.steps import check_memory_limit, connected, open_steps, remove_steps, shortage_explained

COLUMNS = ("id", "first", "second", "split")
SCHEMA = pa.schema([("row", pa.int64()), *((name, pa.string()) for name in COLUMNS)])
ROWS_AT_ONCE = 50_000
SPLITS = ("train", "dev", "test")
XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")
FILE_ENDINGS = (".tsv", ".tmx", ".tmx.gz", ".parquet")

CARD = """\
---
{{ card_data }}
---

# {{ name }}

Sentences and their translations, in tables by pair of languages, made by `python -m training.corpus.parallel`. Left out
are pairs with an empty side, pairs that are the same on both sides, pairs of which one side has more than
{{ recipe.max_length_ratio }} times the characters of the other{% if recipe.identify_languages %}, pairs of which a side
is in another language than it should be by py3langid{% endif %}, and duplicates. The licences are those of the sources.

| pair | {{ reasons | join(" | ") }} | sources |
|{{ "---|" * (reasons | length + 2) }}
{% for languages, counts in statistics.items() -%}
| {{ languages }} | {% for reason in reasons %}{{ counts.get(reason, 0) }} | {% endfor -%}
{{ recipe.files[languages] | join(", ") }} |
{% endfor %}"""


class Translation(NamedTuple):
    """A sentence and its translation, with the id and the split that their source gives them."""

    first: str
    second: str
    id: str | None = None
    split: str | None = None


@dataclass(kw_only=True)
class ParallelRecipe:
    """Translations from files to tables of pairs."""

    output: str
    """Folder of the tables, of `statistics.json` and of a card."""

    files: dict[str, list[str]]
    """By pair of languages, such as en-de: two files, line by line translations of each other; or one that ends with
    .tsv, .tmx, .tmx.gz or .parquet; or a data set of the Hub, <owner>/<name>:<config>."""

    max_length_ratio: float = 9.0
    """A pair of which one side has more than this many times the characters of the other is left out."""

    identify_languages: bool = False
    """Leave out a pair of which a side is not in its language by py3langid, which is sure of sentences, and often wrong
    about a word or two."""

    dev_share: float = 0.01
    """Of the sentences of the first language, drawn by their text, with all their translations."""

    test_share: float = 0.01
    """Likewise, of those that are never trained on."""

    memory_limit: str = "4GB"
    """Memory of DuckDB. What is more goes to disk."""

    def __post_init__(self) -> None:
        if Path(self.output).exists():
            raise ValueError(f"{self.output} exists; remove it, or name another output")
        if not self.files:
            raise ValueError("files is empty; it must name the files of a pair of languages, such as en-de")
        for languages, paths in self.files.items():
            if languages.count("-") != 1:
                raise ValueError(f"files has {languages!r}; a pair of languages is written <one>-<other>")
            alone = len(paths) == 1 and (paths[0].endswith(FILE_ENDINGS) or HUB_NAME.fullmatch(paths[0]))
            if len(paths) != 2 and not alone:
                raise ValueError(
                    f"{languages} has the files {paths}; it must have two, or one that ends with "
                    f"{', '.join(FILE_ENDINGS)}, or a data set of the Hub, <owner>/<name>:<config>"
                )
            for path in paths:
                if not is_on_the_hub(paths) and not Path(path).is_file():
                    raise ValueError(f"{languages}: there is no file {path}")
        if self.max_length_ratio < 1:
            raise ValueError(f"max_length_ratio is {self.max_length_ratio}; it must be at least 1")
        if min(self.dev_share, self.test_share) < 0 or self.dev_share + self.test_share >= 1:
            raise ValueError(
                f"dev_share is {self.dev_share} and test_share {self.test_share}; both must be at least 0, and below 1 "
                "together"
            )
        check_memory_limit(self.memory_limit)
        if self.identify_languages:
            unknown = {code for languages in self.files for code in languages.split("-")} - languages_identified()
            if unknown:
                raise ValueError(
                    f"py3langid does not know the language {', '.join(sorted(unknown))}; leave identify_languages out, "
                    "or make these pairs by themselves"
                )


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(ParallelRecipe, argv)
    output = Path(recipe.output)
    inputs = [Path(path) for paths in recipe.files.values() if not is_on_the_hub(paths) for path in paths]
    with locked(output, wait=False), shortage_explained(output):
        decisive = {name: value for name, value in asdict(recipe).items() if name != "memory_limit"}
        steps = open_steps(output, decisive, inputs)
        with connected(steps, recipe.memory_limit, threads=None) as connection:
            for languages in recipe.files:
                if not (steps / f"{languages}.json").exists():
                    counts = write_table(connection, recipe, languages, steps / f"{languages}.parquet")
                    write_json(steps / f"{languages}.json", counts)
        with folder_written_whole(output) as folder:
            (folder / "pairs").mkdir()
            statistics = {}
            for languages in recipe.files:
                shutil.copyfile(steps / f"{languages}.parquet", folder / "pairs" / f"{languages}.parquet")
                statistics[languages] = json.loads((steps / f"{languages}.json").read_text(encoding="utf-8"))
            write_json(folder / "statistics.json", statistics)
            card_of(recipe, statistics).save(folder / "README.md")
        remove_steps(steps)


def write_table(
    connection: duckdb.DuckDBPyConnection, recipe: ParallelRecipe, languages: str, target: Path
) -> dict[str, int]:
    """Returns how many pairs were written to each split, and how many were left out for which reason."""
    read = target.with_suffix(".read.parquet")
    counts = write_read(recipe, languages, read)
    with file_written_whole(target) as partial:
        connection.execute(
            f"""
            COPY (
                SELECT {", ".join(COLUMNS)} FROM (
                    SELECT arg_min(id, row) AS id, first, second, arg_min(split, row) AS split, min(row) AS row
                    FROM {readable(read)} GROUP BY first, second
                )
                ORDER BY row
            ) TO {quoted(partial)} (FORMAT parquet, COMPRESSION zstd)
            """
        )
    by_split = dict(
        connection.execute(f"SELECT split, count(*) FROM {readable(target)} GROUP BY split").fetchall(),
    )
    duplicates = parquet.read_metadata(read).num_rows - sum(by_split.values())
    read.unlink()
    counts = Counter({split: by_split[split] for split in SPLITS if split in by_split}) + counts
    return dict(counts + Counter({"duplicate": duplicates}))


def write_read(recipe: ParallelRecipe, languages: str, path: Path) -> Counter[str]:
    """Writes what is read of a pair of languages, numbered, but for what is left out. Returns that, by reason."""
    counts: Counter[str] = Counter()
    rows: list[tuple[int, str, str, str, str]] = []
    pairs = translations(recipe.files[languages], languages)
    with file_written_whole(path) as partial, parquet.ParquetWriter(partial, SCHEMA, compression="zstd") as writer:
        for row, pair in enumerate(tqdm(pairs, languages, unit="pair", delay=SECONDS, disable=None)):
            reason = fault(pair, recipe.max_length_ratio)
            if reason is None and recipe.identify_languages and identified(pair) != languages.split("-"):
                reason = "another language"
            if reason is not None:
                counts[reason] += 1
                continue
            split = pair.split or split_of(pair.first, recipe)
            rows.append((row, pair.id or digest_of(pair.first).hex(), pair.first, pair.second, split))
            if len(rows) == ROWS_AT_ONCE:
                writer.write_table(table_of(rows))
                rows = []
        writer.write_table(table_of(rows))
    return counts


# --- Sources ---


def translations(paths: list[str], languages: str) -> Iterator[Translation]:
    """The pairs of a source, without white space around them.

    Raises:
        ValueError: the source is malformed; names the file and the line.
    """
    if len(paths) == 2:
        return of_moses(*paths)
    if is_on_the_hub(paths):
        return of_hub(paths[0], *languages.split("-"))
    if paths[0].endswith(".parquet"):
        return of_parquet(paths[0])
    return of_tsv(paths[0]) if paths[0].endswith(".tsv") else of_tmx(paths[0], *languages.split("-"))


def is_on_the_hub(paths: list[str]) -> bool:
    return len(paths) == 1 and not paths[0].endswith(FILE_ENDINGS)


def of_moses(first: str, second: str) -> Iterator[Translation]:
    """Two files, of which a line is the translation of the same line of the other."""
    for line_number, (one, other) in enumerate(zip_longest(lines_of(first), lines_of(second)), start=1):
        if one is None or other is None:
            shorter, longer = (first, second) if one is None else (second, first)
            raise ValueError(
                f"{shorter} ends before line {line_number}, which {longer} has; the two must have as many lines, "
                "translations of each other"
            )
        yield Translation(one.strip(), other.strip())


def of_tsv(path: str) -> Iterator[Translation]:
    for line_number, line in enumerate(lines_of(path), start=1):
        if line.count("\t") != 1:
            raise ValueError(
                f"{path}, line {line_number}: there are {line.count(chr(9))} tabs; a line must have one, between a "
                "sentence and its translation"
            )
        first, second = line.split("\t")
        yield Translation(first.strip(), second.strip())


def lines_of(path: str) -> Iterator[str]:
    with open(path, "rb") as file:
        for line_number, line in enumerate(file, start=1):
            try:
                yield line.decode("utf-8").removesuffix("\n")
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}, line {line_number}: {error}; convert the file to UTF-8") from error


def of_tmx(path: str, first: str, second: str) -> Iterator[Translation]:
    """The units of a translation memory. A side that a unit lacks is empty; of several in a language the first counts;
    en-GB is en."""
    with open(path, "rb") as packed, gzip.open(packed) if path.endswith(".gz") else packed as file:
        try:
            body = ElementTree.Element("body")
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
                    body.clear()  # of what is read already, or all of it would stay in memory
        except ElementTree.ParseError as error:
            raise ValueError(f"{path}, line {error.position[0]}: is no TMX ({error}); take the file anew") from None
        except (EOFError, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} is no whole gzip file ({error}); take the file anew") from None


def of_parquet(path: str) -> Iterator[Translation]:
    file = parquet.ParquetFile(path)
    names = file.schema_arrow.names
    sides = next((sides for sides in (["first", "second"], ["english", "text"]) if {*sides} <= {*names}), None)
    if sides is None:
        raise ValueError(
            f"{path} has the columns {', '.join(names)}; it must have first and second, or english and text"
        )
    given = {"id": next((name for name in ("id", "segment_id") if name in names), None), "split": "split"}
    columns = {name: column for name, column in given.items() if column in names}
    row = 0
    for batch in file.iter_batches(ROWS_AT_ONCE, columns=[*sides, *filter(None, columns.values())]):
        for values in batch.to_pylist():
            more = {name: str(values[column]) for name, column in columns.items() if values[column] is not None}
            if more.get("split", "train") not in SPLITS:
                raise ValueError(f"{path}, row {row}: split is {more['split']!r}; it must be {', '.join(SPLITS)}")
            yield Translation(*((values[side] or "").strip() for side in sides), **more)
            row += 1


def of_hub(name: str, first: str, second: str) -> Iterator[Translation]:
    """All pairs of the splits of a data set of the Hub; of its train split alone if it has one."""
    repository, _, config = name.partition(":")
    try:
        loaded = datasets.load_dataset(repository, config or None)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(
            f"{name} is neither a file nor a data set of the Hub that opens ({error}); name a configuration, "
            "<owner>/<name>:<config>, and without a network fetch it beforehand where there is one"
        ) from error
    splits = {"train": loaded["train"]} if "train" in loaded else loaded
    for split, table in splits.items():
        if "translation" not in table.column_names or not {first, second} <= {*table.features["translation"]}:
            raise ValueError(
                f"{name}, {split}: has the columns {table.features}; there must be a column translation with {first} "
                f"and {second}"
            )
        for row in table:
            yield Translation(*((row["translation"][language] or "").strip() for language in (first, second)))


# --- What is left out, and where the rest goes ---


def fault(pair: Translation, max_length_ratio: float) -> str | None:
    """Why a pair is left out; None if it is not."""
    if not pair.first or not pair.second:
        return "empty side"
    if pair.first == pair.second:
        return "same sentence on both sides"
    lengths = len(pair.first), len(pair.second)
    return "length ratio" if max(lengths) > max_length_ratio * min(lengths) else None


def identified(pair: Translation) -> list[str]:
    """The languages of both sides, by a model that py3langid brings along."""
    import py3langid  # takes seconds, and few need it

    return [py3langid.classify(side)[0] for side in (pair.first, pair.second)]


def languages_identified() -> set[str]:
    import py3langid

    return {language for language, _ in py3langid.rank("")}


def split_of(first: str, recipe: ParallelRecipe) -> str:
    """The same for a sentence in every table."""
    drawn = int.from_bytes(digest_of(f"split {first}"), "big") / 2**64
    if drawn < recipe.dev_share:
        return "dev"
    return "test" if drawn < recipe.dev_share + recipe.test_share else "train"


def digest_of(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def table_of(rows: list[tuple[int, str, str, str, str]]) -> pa.Table:
    columns = [[row[index] for row in rows] for index in range(len(SCHEMA))]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA)], schema=SCHEMA)


def card_of(recipe: ParallelRecipe, statistics: dict[str, dict[str, int]]) -> DatasetCard:
    data = DatasetCardData(
        language=sorted({code for languages in recipe.files for code in languages.split("-")}),
        task_categories=["translation"],
        pretty_name=Path(recipe.output).name,
        configs=[{"config_name": languages, "data_files": f"pairs/{languages}.parquet"} for languages in recipe.files],
    )
    return DatasetCard.from_template(
        data,
        template_str=CARD,
        name=Path(recipe.output).name,
        recipe=recipe,
        statistics=statistics,
        reasons=list(dict.fromkeys(reason for counts in statistics.values() for reason in counts)),
    )


if __name__ == "__main__":
    main()
