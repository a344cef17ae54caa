"""XNLI: the folders XNLI-1.0 and, with translated training data, XNLI-MT-1.0 as their archives unpack
(cims.nyu.edu/~sbowman/xnli); premise and hypothesis, so text_pairs."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from common.files import write_text
from evaluation.datasets.files import lines, on_one_line, parts
from evaluation.recipes import ClassificationTask


def convert(task: ClassificationTask, output: Path) -> None:
    folder = Path(task.data)
    for language, part in parts(task):
        labelled: Iterable[tuple[str, ...]]
        if part == "train":
            # The translations say contradictory.
            file = folder / "XNLI-MT-1.0" / "multinli" / f"multinli.train.{language}.tsv"
            rows = table(file, "label", "premise", "hypo")
            labelled = ((label.replace("contradictory", "contradiction"), *texts) for label, *texts in rows)
        else:
            file = folder / "XNLI-1.0" / f"xnli.{part}.tsv"
            rows = table(file, "language", "gold_label", "sentence1", "sentence2")
            labelled = [row[1:] for row in rows if row[0] == language]
            if not labelled:
                raise ValueError(f"{file} has no row in language {language!r}; leave it out")
        write_text(output / f"{language}.{part}.tsv", "".join(map(on_one_line, labelled)))


def table(path: Path, *columns: str) -> Iterator[tuple[str, ...]]:
    """Some columns of a tab-separated file with a header, row by row. A quotation mark is a character like others.

    Raises:
        ValueError: the file is missing, or a row lacks a column.
    """
    rows = csv.DictReader((f"{line}\n" for _, line in lines(path)), delimiter="\t", quoting=csv.QUOTE_NONE)
    for row in rows:
        fields = tuple(row.get(column) for column in columns)
        if None in fields:
            raise ValueError(f"{path}, line {rows.line_num}: lacks one of the columns {', '.join(columns)}")
        yield tuple(map(str, fields))
