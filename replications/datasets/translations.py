"""Two files that are translations of each other, line by line, as a set in which a sentence seeks its translation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evaluation.datasets.files import lines, write_documents, write_qrels, write_queries
from evaluation.datasets.languages import languages_of
from evaluation.recipes import RetrievalTask


def read_translations(first: Path, second: Path) -> tuple[list[str], list[str]]:
    """The lines of two files, line by line translations.

    Raises:
        ValueError: a file is missing, or one has fewer lines.
    """
    one, other = ([line for _, line in lines(file)] for file in (first, second))
    if len(one) != len(other):
        raise ValueError(
            f"{first} has {len(one)} lines, {second.name} {len(other)}; they must be translations of each other, line "
            "by line, so take both anew"
        )
    return one, other


def write_translations(
    task: RetrievalTask, output: Path, pair: str, queries: Mapping[int, str], documents: list[str]
) -> None:
    """Write the set of one pair, in which a query seeks the document of its number."""
    query_language, document_language = languages_of(pair)
    write_queries(output / pair, query_language, ((str(row), text) for row, text in queries.items()))
    write_documents(output / pair, document_language, ((str(row), text) for row, text in enumerate(documents)))
    write_qrels(output / pair, task.split, (f"{row} 0 {row} 1\n" for row in queries))
