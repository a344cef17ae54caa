"""XQuAD-R of LAReQA (github.com/google-research-datasets/lareqa, folder xquad-r): a question seeks the sentence that
answers it. The pairs en-all, de-all ... search the sentences of all languages at once, as the paper does: its mAP is
MAP there, and XTREME-R's mAP@20 is MAP@20.

Relevant are, in every language, the sentences of the paragraph that read as the one in which the answer begins. A
question whose answer begins in no sentence is left out in that language, as in the paper's program.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.datasets.files import write_documents, write_qrels, write_queries
from evaluation.datasets.languages import query_and_document_languages
from evaluation.recipes import RetrievalTask


class Question(NamedTuple):
    """Its id, which is the same in all languages, its text, and where its answers begin, in characters."""

    name: str
    text: str
    answers: list[int]


class Paragraph(NamedTuple):
    """A text, its questions, and where its sentences begin and end; none in files of SQuAD and XQuAD."""

    text: str
    questions: list[Question]
    sentences: list[tuple[int, int]]


def convert(task: RetrievalTask, output: Path) -> None:
    qrels: list[str] = []
    for language in dict.fromkeys(part for side in query_and_document_languages(task.pairs) for part in side):
        documents: dict[str, str] = {}
        queries: dict[str, str] = {}
        for number, paragraph in enumerate(read_paragraphs(Path(task.data) / f"{language}.json")):
            # Sentences are divided differently in each language, so an id says its language.
            sentences = [(f"{language}-{number}.{place}", span) for place, span in zip(count(), paragraph.sentences)]
            texts = {doc_id: paragraph.text[begin:end] for doc_id, (begin, end) in sentences}
            documents |= texts
            for name, question, answers in paragraph.questions:
                found = [doc_id for doc_id, (begin, end) in sentences if any(begin <= start < end for start in answers)]
                if found:
                    queries[name] = question
                    relevant = [doc_id for doc_id, text in texts.items() if text == texts[found[0]]]
                    qrels += [f"{name}\t0\t{doc_id}\t1\n" for doc_id in relevant]
        write_documents(output, language, documents.items())
        write_queries(output, language, queries.items())
    write_qrels(output, task.split, qrels)


def read_paragraphs(path: Path) -> list[Paragraph]:
    """
    Raises:
        ValueError: the file is missing or not in SQuAD's format.
    """
    if not path.is_file():
        raise ValueError(f"{path} is missing; write one file of questions and paragraphs a language there")
    try:
        return list(_paragraphs(json.loads(path.read_text(encoding="utf-8-sig"))))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not in SQuAD's format (data, paragraphs, context, qas): {error!r}") from None


def _paragraphs(squad: Any) -> Iterator[Paragraph]:
    for article in squad["data"]:
        for paragraph in article["paragraphs"]:
            questions = [
                Question(asked["id"], asked["question"], [int(answer["answer_start"]) for answer in asked["answers"]])
                for asked in paragraph["qas"]
            ]
            sentences = [(int(begin), int(end)) for begin, end in paragraph.get("sentence_breaks", ())]
            yield Paragraph(paragraph["context"], questions, sentences)
