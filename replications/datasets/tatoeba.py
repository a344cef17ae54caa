"""Tatoeba: the files tatoeba.<xxx>-eng.<xxx> and .eng of LASER's data, sentences with English ones."""

from __future__ import annotations

from pathlib import Path

import langcodes

from evaluation.datasets.languages import languages_of
from evaluation.recipes import RetrievalTask
from replications.datasets.translations import read_translations, write_translations

# The language that stands for a group of languages there.
INDIVIDUAL_LANGUAGES = {"fa": "pes", "fil": "tgl", "lv": "lvs", "ms": "zsm", "no": "nob", "sw": "swh", "zh": "cmn"}


def convert(task: RetrievalTask, output: Path) -> None:
    for pair in task.pairs:
        query_language, document_language = languages_of(pair)
        other = document_language if query_language == "en" else query_language
        codes = [langcodes.get(other).to_alpha3(), INDIVIDUAL_LANGUAGES.get(other, other)]
        files = [Path(task.data) / f"tatoeba.{code}-eng.{code}" for code in codes]
        foreign = next((file for file in files if file.is_file()), files[0])
        files_by_language = {other: foreign, "en": foreign.with_suffix(".eng")}
        queries, documents = read_translations(files_by_language[query_language], files_by_language[document_language])
        write_translations(task, output, pair, dict(enumerate(queries)), documents)
