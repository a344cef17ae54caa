"""Files of this project's own format, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from hmde.common import records
from hmde.common.files import file_written_whole, write_text
from modeling_hmde.segmentation_hmde import replace_surrogates

Documents = Iterable[tuple[str, str]]  # id and text


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that has some, see `hmde.common.records.lines`.

    Raises:
        ValueError: as there, or the file is empty.
    """
    number = 0
    for number, line in records.lines(path, f"reading {path}"):
        yield number, line
    if not number:
        raise ValueError(f"{path} is empty; leave its language out, or fill it")


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


def write_qrels(output: Path, split: str | None, qrels: Iterable[str]) -> None:
    write_text(qrels_file(output, split), "".join(qrels))


def qrels_file(folder: Path, split: str | None) -> Path:
    return folder / (f"qrels.{split}.tsv" if split else "qrels.tsv")
