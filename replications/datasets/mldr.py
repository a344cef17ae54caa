"""MLDR (Shitao/MLDR on the Hub): questions to long documents in their own language, so pairs such as de-de."""

from __future__ import annotations

from pathlib import Path

from evaluation.datasets.files import write_documents, write_qrels, write_queries
from evaluation.datasets.languages import query_and_document_languages
from evaluation.recipes import RetrievalTask
from replications.datasets.files import fetch, fields_of_lines


def convert(task: RetrievalTask, output: Path) -> None:
    part = task.split or "test"
    qrels = []
    for language in query_and_document_languages(task.pairs)[0]:
        folder = f"mldr-v1.0-{language}"
        corpus = fetch(task.data, f"{folder}/corpus.jsonl.gz")
        write_documents(output, language, fields_of_lines(corpus, lambda row: (row["docid"], row["text"])))
        file = fetch(task.data, f"{folder}/{part}.jsonl.gz")
        questions = list(fields_of_lines(file, lambda row: (row["query_id"], row["query"])))
        write_queries(output, language, questions)
        relevant = fields_of_lines(file, lambda row: [passage["docid"] for passage in row["positive_passages"]])
        qrels += [f"{query} 0 {docid} 1\n" for (query, _), docids in zip(questions, relevant) for docid in docids]
    write_qrels(output, task.split, qrels)
