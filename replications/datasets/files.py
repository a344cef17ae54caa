"""What converters of published sets share: how their files are found and read, and how labelled texts are written."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

from huggingface_hub import hf_hub_download

from evaluation.datasets.files import lines, on_one_line
from evaluation.recipes import ClassificationTask
from hmde.common.files import write_text
from hmde.common.records import json_value, malformed

Fields = TypeVar("Fields", tuple[str, str], list[str])


def parts(task: ClassificationTask) -> list[tuple[str, str]]:
    """Language and part of each file that a task needs."""
    learnt = [(language, part) for language in task.train_languages for part in ("train", "dev")]
    return learnt + [(language, "test") for language in task.test_languages]


def fetch(source: str, file: str) -> Path:
    """A file of a data set, from a folder or from the Hub."""
    return Path(source) / file if Path(source).is_dir() else Path(hf_hub_download(source, file, repo_type="dataset"))


def fields_of_lines(path: Path, fields: Callable[[Any], Fields]) -> Iterator[Fields]:
    """The strings that `fields` takes from the object on each line of a jsonl file, packed or not, one at a time.

    Raises:
        ValueError: the file is missing or malformed, or an object lacks a field.
    """
    for line_number, line in lines(path):
        row = json_value(path, line_number, line)
        try:
            values = fields(row)
            if not all(isinstance(value, str) for value in values):
                raise TypeError(f"{values} are not all strings")
        except (KeyError, TypeError, AttributeError) as error:
            raise malformed(path, line_number, f"lacks a field, or has one of another type ({error!r})") from None
        yield values


def table(path: Path, *columns: str, quoting: Literal[0, 3] = csv.QUOTE_MINIMAL) -> Iterator[tuple[str, ...]]:
    """Some columns of a tab-separated file with a header, row by row.

    Args:
        quoting: csv.QUOTE_NONE where a quotation mark is a character like others.

    Raises:
        ValueError: the file is missing or malformed, or a row lacks a column.
    """
    # A text is written on one line anyway, and csv takes a lone carriage return for a line end.
    unbroken = (line.replace("\r", " ") + "\n" for _, line in lines(path))
    rows = csv.DictReader(unbroken, delimiter="\t", quoting=quoting)
    try:
        for row in rows:
            fields = [row.get(column) for column in columns]
            if None in fields:
                raise malformed(path, rows.line_num, f"lacks one of the columns {', '.join(columns)}")
            yield tuple(map(str, fields))
    except csv.Error as error:  # a field of more than csv.field_size_limit() characters
        raise malformed(path, rows.line_num + 1, f"cannot be read ({error}); close its quotation marks") from None


def write_labelled(output: Path, language: str, part: str, labelled: Iterable[tuple[str, ...]]) -> None:
    write_text(output / f"{language}.{part}.tsv", "".join(map(on_one_line, labelled)))
