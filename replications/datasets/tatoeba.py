"""Tatoeba: the files tatoeba.<xxx>-eng.<xxx> and .eng of LASER's data, sentences with English ones."""

from __future__ import annotations

from pathlib import Path

import langcodes

from evaluation.datasets.files import lines, write_documents, write_qrels, write_queries
from evaluation.datasets.languages import languages_of
from evaluation.recipes import RetrievalTask

# The language that stands for a group of languages there.
INDIVIDUAL_LANGUAGES = {"fa": "pes", "fil": "tgl", "lv": "lvs", "ms": "zsm", "no": "nob", "sw": "swh", "zh": "cmn"}


def convert(task: RetrievalTask, output: Path) -> None:
    """Each pair has a set of its own, in which a sentence seeks the one of its number."""
    for pair in task.pairs:
        query_language, document_language = languages_of(pair)
        other = document_language if query_language == "en" else query_language
        codes = [langcodes.get(other).to_alpha3(), INDIVIDUAL_LANGUAGES.get(other, other)]
        files = [Path(task.data) / f"tatoeba.{code}-eng.{code}" for code in codes]
        foreign = next((file for file in files if file.is_file()), files[0])
        sentences = read_translations({other: foreign, "en": foreign.with_suffix(".eng")})
        queries, documents = (
            [(str(row), text) for row, text in enumerate(sentences[language])]
            for language in (query_language, document_language)
        )
        write_queries(output / pair, query_language, queries)
        write_documents(output / pair, document_language, documents)
        write_qrels(output / pair, task.split, (f"{row} 0 {row} 1\n" for row, _ in queries))


def read_translations(files: dict[str, Path]) -> dict[str, list[str]]:
    """The lines of two files by language, line by line translations.

    Raises:
        ValueError: a file is missing, or one has fewer lines.
    """
    texts = {language: [line for _, line in lines(file)] for language, file in files.items()}
    counts = ", ".join(f"{file.name} has {len(texts[language])} lines" for language, file in files.items())
    if len({*map(len, texts.values())}) > 1:
        raise ValueError(f"{counts}; they must be translations of each other, line by line, so take both anew")
    return texts
