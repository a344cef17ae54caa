"""XNLI: the folders XNLI-1.0 and, with translated training data, XNLI-MT-1.0 as their archives unpack
(cims.nyu.edu/~sbowman/xnli); premise and hypothesis, so text_pairs."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from evaluation.datasets.files import parts, table, write_labelled
from evaluation.recipes import ClassificationTask


def convert(task: ClassificationTask, output: Path) -> None:
    folder = Path(task.data)
    for language, part in parts(task):
        labelled: Iterable[tuple[str, ...]]
        if part == "train":
            # The translations say contradictory.
            file = folder / "XNLI-MT-1.0" / "multinli" / f"multinli.train.{language}.tsv"
            rows = table(file, "label", "premise", "hypo", quoting=csv.QUOTE_NONE)
            labelled = ((label.replace("contradictory", "contradiction"), *texts) for label, *texts in rows)
        else:
            file = folder / "XNLI-1.0" / f"xnli.{part}.tsv"
            rows = table(file, "language", "gold_label", "sentence1", "sentence2", quoting=csv.QUOTE_NONE)
            labelled = [row[1:] for row in rows if row[0] == language]
            if not labelled:
                raise ValueError(f"{file} has no row in language {language!r}; leave it out")
        write_labelled(output, language, part, labelled)
