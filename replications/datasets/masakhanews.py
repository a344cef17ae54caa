"""MasakhaNEWS (masakhane/masakhanews on the Hub); headline and text."""

from __future__ import annotations

from pathlib import Path

from evaluation.recipes import ClassificationTask
from replications.datasets.files import fetch, parts, table, write_labelled
from replications.datasets.languages import long_code


def convert(task: ClassificationTask, output: Path) -> None:
    for language, part in parts(task):
        rows = table(fetch(task.data, f"data/{long_code(language)}/{part}.tsv"), "category", "headline", "text")
        write_labelled(output, language, part, ((category, f"{headline} {text}") for category, headline, text in rows))
