"""Sets that the library ir_datasets reads, by their names there: NeuCLIR (neuclir/1/fa/trec-2022 ...), CLIRMatrix
(clirmatrix/de/multi8/en/test1 ...), MIRACL (miracl/de/dev ...) and others. A task has one pair of languages.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.datasets.files import write_documents, write_qrels, write_queries
from evaluation.datasets.languages import languages_of
from evaluation.recipes import RetrievalTask


def convert(task: RetrievalTask, output: Path) -> None:
    import ir_datasets

    if len(task.pairs) != 1:
        raise ValueError(f"pairs is {task.pairs}; {task.format} holds one pair, so make a task of each")
    query_language, document_language = languages_of(task.pairs[0])
    try:
        dataset = ir_datasets.load(task.data)
    except KeyError:
        raise ValueError(f"data is {task.data!r}, which ir_datasets does not know; see ir-datasets.com") from None
    write_documents(output, document_language, ((doc.doc_id, doc.default_text()) for doc in dataset.docs_iter()))
    write_queries(output, query_language, ((query.query_id, query.default_text()) for query in dataset.queries_iter()))
    qrels = (f"{judged.query_id} 0 {judged.doc_id} {judged.relevance}\n" for judged in dataset.qrels_iter())
    write_qrels(output, task.split, qrels)
