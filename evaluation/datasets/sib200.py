"""SIB-200 (Davlan/sib200 on the Hub); sentences."""

from __future__ import annotations

from pathlib import Path

import langcodes

from evaluation.datasets.files import fetch, parts, table, write_labelled
from evaluation.datasets.languages import INDIVIDUAL_LANGUAGES, long_code
from evaluation.recipes import ClassificationTask


def convert(task: ClassificationTask, output: Path) -> None:
    for language, part in parts(task):
        code = INDIVIDUAL_LANGUAGES.get(language) or long_code(language)
        script = langcodes.get(language).maximize().script
        rows = table(fetch(task.data, f"data/{code}_{script}/{part}.tsv"), "category", "text")
        write_labelled(output, language, part, ((category, text) for category, text in rows))
