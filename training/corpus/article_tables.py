"""Tables of articles that users bring, as JSON lines or Parquet. Every row is checked."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from reprlib import repr as shortened

import pyarrow as pa
import pyarrow.parquet as parquet

from hmde.common.files import file_written_whole
from hmde.common.records import ROWS_AT_ONCE, malformed, rows
from training.corpus.recipe import SPLITS

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
WHERE_THERE_IS_NONE = {"categories": [], "source": "", "license": ""}  # columns that may be missing
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character of UTF-16; JSON can hold one alone, UTF-8 cannot


def copy_table(path: Path, language: str, target: Path) -> int:
    """Writes the checked articles of a table as Parquet: `ARTICLE_COLUMNS`, and `row`, counted from 1 as in the file.

    Returns:
        The number of articles.

    Raises:
        ValueError: the file is neither JSON lines nor Parquet, has no row, or a row is no article of the language;
            names the file and the line or row.
    """
    numbered = rows(path, list(ARTICLE_COLUMNS))
    schema = pa.schema({**ARTICLE_COLUMNS, "row": pa.int64()})
    count = 0
    with file_written_whole(target) as partial, parquet.ParquetWriter(partial, schema) as writer:
        while batch := list(islice(numbered, ROWS_AT_ONCE)):
            for number, row in batch:
                if rule := broken_rule(row, language):
                    raise malformed(path, number, rule)
            articles = [{**WHERE_THERE_IS_NONE, **row, "row": number} for number, row in batch]
            writer.write_batch(pa.RecordBatch.from_pylist(articles, schema))
            count += len(batch)
        if not count:
            raise ValueError(f"{path} has no row; bring articles of {language}, or leave the language out")
    return count


def broken_rule(row: object, language: str) -> str | None:
    """Why a row is no article of the language; None if it is one."""
    if not isinstance(row, dict):
        return f"is {shortened(row)}; an article is a JSON object with {', '.join(ARTICLE_COLUMNS)}"
    for column, kind in ARTICLE_COLUMNS.items():
        if column not in row and column in WHERE_THERE_IS_NONE:
            continue
        if column not in row:
            return f"has no {column}; an article has {', '.join(ARTICLE_COLUMNS)}"
        value = row[column]
        if kind != pa.string() and not isinstance(value, list):
            return f"{column} is {shortened(value)}; it must be a list of texts, which may be empty"
        name, texts = (column, [value]) if kind == pa.string() else (f"one of {column}", value)
        for text in texts:
            if not isinstance(text, str):
                return f"{name} is {shortened(text)}; it must be a text"
            if half := SURROGATE.search(text):
                return f"{name} has half of a surrogate pair at character {half.start() + 1}; remove that character"
    if "" in row.get("categories", []):
        return "one of categories is empty; name it, or leave it out"
    if not row["concept_id"]:
        return "concept_id is empty; give all articles on one concept the same name"
    if row["language"] != language:
        return f"language is {shortened(row['language'])}; the file is for {language!r}"
    if row["split"] not in SPLITS:
        return f"split is {shortened(row['split'])}; it must be train, dev or test"
    return None
