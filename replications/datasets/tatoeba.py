"""Tatoeba: the files tatoeba.<xxx>-eng.<xxx> and .eng of LASER's data, sentences with English ones."""

from __future__ import annotations

from pathlib import Path

from evaluation.datasets.languages import INDIVIDUAL_LANGUAGES, languages_of, long_code
from evaluation.recipes import RetrievalTask
from replications.datasets.translations import read_translations, write_translations


def convert(task: RetrievalTask, output: Path) -> None:
    for pair in task.pairs:
        query_language, document_language = languages_of(pair)
        other = document_language if query_language == "en" else query_language
        codes = [long_code(other), INDIVIDUAL_LANGUAGES.get(other, other), "cmn"]  # zh is cmn there
        files = [Path(task.data) / f"tatoeba.{code}-eng.{code}" for code in codes[: 3 if other == "zh" else 2]]
        foreign = next((file for file in files if file.is_file()), files[0])
        files_by_language = {other: foreign, "en": foreign.with_suffix(".eng")}
        queries, documents = read_translations(files_by_language[query_language], files_by_language[document_language])
        write_translations(task, output, pair, dict(enumerate(queries)), documents)
