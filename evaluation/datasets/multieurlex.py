"""MultiEURLEX (coastalcph/multi_eurlex, its archive data/multi_eurlex.tar.gz unpacked): train.jsonl, dev.jsonl and
test.jsonl; the first level of EuroVoc, several labels a document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaluation.datasets.files import fields_of_lines, parts, write_labelled
from evaluation.datasets.labelled_sets import LABEL_SEPARATOR
from evaluation.recipes import ClassificationTask


def convert(task: ClassificationTask, output: Path) -> None:
    for language, part in parts(task):

        def labels_and_text(row: Any, language: str = language) -> tuple[str, str]:
            return LABEL_SEPARATOR.join(row["eurovoc_concepts"]["level_1"]), row["text"].get(language) or ""

        laws = fields_of_lines(Path(task.data) / f"{part}.jsonl", labels_and_text)
        # A law may be missing in a language that joined later.
        write_labelled(output, language, part, ((labels, text) for labels, text in laws if text))
