"""SIB-200 (Davlan/sib200 on the Hub); sentences."""

from __future__ import annotations

from pathlib import Path

import langcodes

from evaluation.recipes import ClassificationTask
from replications.datasets.files import fetch, parts, table, write_labelled
from replications.datasets.languages import INDIVIDUAL_LANGUAGES, long_code

# FLORES names one script by its alphabet, not by the mixed script of ISO 15924.
SCRIPTS = {"Kore": "Hang"}


def convert(task: ClassificationTask, output: Path) -> None:
    for language, part in parts(task):
        rows = table(fetch(task.data, file_of(language, part)), "category", "text")
        write_labelled(output, language, part, ((category, text) for category, text in rows))


def file_of(language: str, part: str) -> str:
    """
    >>> file_of("fa", "test"), file_of("ko", "train")
    ('data/pes_Arab/test.tsv', 'data/kor_Hang/train.tsv')
    """
    code = INDIVIDUAL_LANGUAGES.get(language) or long_code(language)
    script = langcodes.get(language).maximize().script or ""
    return f"data/{code}_{SCRIPTS.get(script, script)}/{part}.tsv"
