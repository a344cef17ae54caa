"""Tables of articles that users bring, as JSON lines or Parquet. Every row is checked; an error names file and row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from common.files import file_written_whole

ARTICLE_COLUMNS = {
    "concept_id": pa.string(),  # the same in all languages
    "language": pa.string(),  # ISO 639-1
    "title": pa.string(),
    "text": pa.string(),  # a paragraph a line; a first line that equals the title is cut
    "categories": pa.list_(pa.string()),
    "source": pa.string(),
    "license": pa.string(),
    "split": pa.string(),  # train, dev or test, the same for all articles of a concept
}
_SPLITS = ("train", "dev", "test")
_ROWS_AT_ONCE = 1024


def copy_table(path: Path, language: str, target: Path) -> int:
    """Writes the checked articles of a table as Parquet: `ARTICLE_COLUMNS`, and `row`, counted from 1 as in the file.

    Returns:
        The number of articles.

    Raises:
        ValueError: the file is neither JSON lines nor Parquet, lacks a column, has no row, or a row is no article of
            the language.
    """
    rows = iter(_rows_of_parquet(path) if path.suffix == ".parquet" else _rows_of_json_lines(path))
    schema = pa.schema({**ARTICLE_COLUMNS, "row": pa.int64()})
    count = 0
    with file_written_whole(target) as partial, parquet.ParquetWriter(partial, schema) as writer:
        while batch := list(islice(rows, _ROWS_AT_ONCE)):
            for index, row in batch:
                check_article(row, language, row_name(path, index))
            articles = [{**row, "row": index} for index, row in batch]
            writer.write_batch(pa.RecordBatch.from_pylist(articles, schema))
            count += len(batch)
        if not count:
            raise ValueError(f"{path} has no row; bring articles of {language}, or leave the language out")
    return count


def row_name(path: Path, *rows: int) -> str:
    """How a user finds rows of a file again: `en.jsonl, line 7`, `en.parquet, rows 7 and 9`."""
    kind = "row" if path.suffix == ".parquet" else "line"
    return f"{path}, {kind}{'s' * (len(rows) > 1)} {' and '.join(map(str, rows))}"


def check_article(row: object, language: str, where: str) -> None:
    """
    Raises:
        ValueError: the row is no article of the language; begins with `where`.
    """
    if not isinstance(row, dict):
        raise ValueError(f"{where} is {shortened(row)}; an article is a JSON object with {', '.join(ARTICLE_COLUMNS)}")
    for name, kind in ARTICLE_COLUMNS.items():
        if name not in row:
            raise ValueError(f"{where} has no {name}; an article has {', '.join(ARTICLE_COLUMNS)}")
        value = row[name]
        if kind == pa.string():
            _check_text(value, f"{where}: {name}")
        elif not isinstance(value, list):
            raise ValueError(f"{where}: {name} is {shortened(value)}; it must be a list of texts, which may be empty")
        else:
            for category in value:
                _check_text(category, f"{where}: one of {name}")
                if not category:
                    raise ValueError(f"{where}: one of {name} is empty; name it, or leave it out")
    if not row["concept_id"]:
        raise ValueError(f"{where}: concept_id is empty; give all articles on one concept the same name")
    if row["language"] != language:
        raise ValueError(f"{where}: language is {shortened(row['language'])}; the file is for {language!r}")
    if row["split"] not in _SPLITS:
        raise ValueError(f"{where}: split is {shortened(row['split'])}; it must be train, dev or test")


def _check_text(value: object, name: str) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} is {shortened(value)}; it must be a text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} has half of a surrogate pair at character {error.start + 1}; it is no text, remove that character"
        ) from None


def _rows_of_json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Each row with its line's number. Empty lines, and a byte-order mark before the first line, are no rows."""
    with path.open("rb") as file:
        for index, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield index, json.loads(line.decode("utf-8-sig" if index == 1 else "utf-8"))
            except UnicodeDecodeError as error:
                raise ValueError(f"{row_name(path, index)} is not UTF-8 ({error}); convert the file") from None
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{row_name(path, index)} is not JSON ({error}); repair or remove the line") from None


def _rows_of_parquet(path: Path) -> Iterator[tuple[int, Any]]:
    """Each row with its number, from 1."""
    check_columns(path, list(ARTICLE_COLUMNS))
    index = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches(_ROWS_AT_ONCE, columns=list(ARTICLE_COLUMNS)):
            for values in zip(*(batch[name] for name in ARTICLE_COLUMNS)):
                index += 1
                yield index, {name: value.as_py() for name, value in zip(ARTICLE_COLUMNS, values)}
    except UnicodeDecodeError as error:
        raise ValueError(f"{row_name(path, index)} is not UTF-8 ({error}); write the file anew") from None
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged behind row {index} ({error}); bring it again") from None


def check_columns(path: Path, columns: list[str]) -> None:
    """
    Raises:
        ValueError: the file is no Parquet file, or does not have each of the columns once.
    """
    try:
        names = parquet.read_schema(path).names
    except pa.ArrowException as error:
        raise ValueError(f"{path} is no Parquet file, or not a whole one ({error}); bring it again") from None
    for name in columns:
        if names.count(name) != 1:
            raise ValueError(f"{path} has {names.count(name) or 'no'} column {name}; it must have {', '.join(columns)}")
