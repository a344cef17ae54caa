"""XQuAD, or XQuAD-R of LAReQA: a question seeks the paragraph that answers it, in any pair of languages."""

from __future__ import annotations

from pathlib import Path

from evaluation.datasets.files import write_documents, write_qrels, write_queries
from evaluation.datasets.languages import query_and_document_languages
from evaluation.recipes import RetrievalTask
from replications.datasets.lareqa import read_paragraphs


def convert(task: RetrievalTask, output: Path) -> None:
    """The ids of paragraphs, which stand in the same order in all languages, are their numbers."""
    qrels: dict[str, str] = {}
    for language in dict.fromkeys(part for side in query_and_document_languages(task.pairs) for part in side):
        paragraphs = read_paragraphs(Path(task.data) / f"{language}.json")
        asked = [(number, one) for number, paragraph in enumerate(paragraphs) for one in paragraph.questions]
        write_documents(output, language, ((f"p{number}", found.text) for number, found in enumerate(paragraphs)))
        write_queries(output, language, ((question.name, question.text) for _, question in asked))
        qrels |= {question.name: f"{question.name}\t0\tp{number}\t1\n" for number, question in asked}
    write_qrels(output, task.split, qrels.values())
