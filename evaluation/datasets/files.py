"""What the converters of this folder share: published files are read, and this project's own are written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from common import records
from common.files import file_written_whole, write_text
from evaluation.recipes import ClassificationTask, RetrievalTask
from modeling_hmde.segmentation_hmde import replace_surrogates

Documents = Iterable[tuple[str, str]]  # id and text


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that has some, see `common.records.lines`.

    Raises:
        ValueError: as there, or the file is empty.
    """
    number = 0
    for number, line in records.lines(path, f"reading {path}"):
        yield number, line
    if not number:
        raise ValueError(f"{path} is empty; leave its language out, or fill it")


def parts(task: ClassificationTask) -> list[tuple[str, str]]:
    """Language and part of each file that a task needs."""
    learnt = [(language, part) for language in task.train_languages for part in ("train", "dev")]
    return learnt + [(language, "test") for language in task.test_languages]


def write_documents(output: Path, language: str, documents: Documents) -> None:
    with (
        file_written_whole(output / "docs" / f"{language}.jsonl") as partial,
        partial.open("w", encoding="utf-8", newline="\n") as file,
    ):
        for doc_id, text in documents:
            document = {"doc_id": doc_id, "text": replace_surrogates(text)}
            file.write(json.dumps(document, ensure_ascii=False) + "\n")


def write_queries(output: Path, language: str, queries: Documents) -> None:
    write_text(output / "queries" / f"{language}.tsv", "".join(map(on_one_line, queries)))


def on_one_line(named: tuple[str, ...]) -> str:
    """
    >>> on_one_line(("q1", "Who sat\\non\\tthe mat?"))
    'q1\\tWho sat on the mat?\\n'
    >>> on_one_line(("neutral", "He sat.", "He lay."))
    'neutral\\tHe sat.\\tHe lay.\\n'
    """
    name, *texts = named
    return "\t".join([name, *(" ".join(replace_surrogates(text).split()) for text in texts)]) + "\n"


def qrels_file(task: RetrievalTask, output: Path) -> Path:
    return output / (f"qrels.{task.split}.tsv" if task.split else "qrels.tsv")
