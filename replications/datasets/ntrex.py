"""NTREX-128, a copy of github.com/MicrosoftTranslator/NTREX: documents that stand in 128 languages."""

from __future__ import annotations

from pathlib import Path

from evaluation.datasets.files import lines, write_documents
from evaluation.datasets.languages import query_and_document_languages
from evaluation.recipes import RetrievalTask
from replications.datasets.languages import INDIVIDUAL_LANGUAGES, long_code


def convert(task: RetrievalTask, output: Path) -> None:
    folder = Path(task.data)
    names = [name for _, line in lines(folder / "DOCUMENT_IDS.tsv") for name in line.split()]
    for language in dict.fromkeys(part for side in query_and_document_languages(task.pairs) for part in side):
        file = ntrex_file(folder / "NTREX-128", language)
        sentences = [line for _, line in lines(file)]
        if len(sentences) != len(names):
            raise ValueError(f"{file} has {len(sentences)} lines, DOCUMENT_IDS.tsv {len(names)}; take both anew")
        documents: dict[str, list[str]] = {}
        for name, sentence in zip(names, sentences):
            documents.setdefault(name, []).append(sentence)
        write_documents(output, language, ((name, "\n".join(parts)) for name, parts in documents.items()))


def ntrex_file(folder: Path, language: str) -> Path:
    """The original for English; of a language in several regions the one without a region, else the first."""
    if language == "en":
        return folder / "newstest2019-src.eng.txt"
    code = long_code(language)
    named = [folder / f"newstest2019-ref.{name}.txt" for name in (code, INDIVIDUAL_LANGUAGES.get(language, code))]
    candidates = [*named, *sorted(folder.glob(f"newstest2019-ref.{code}-*.txt"))]
    return next((file for file in candidates if file.is_file()), named[0])
