"""A small task for mteb."""

from __future__ import annotations

from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

DOCUMENTS = {
    "d1": "The cat sat on the mat. It was warm there!",
    "d2": "Der Hund sah die Katze. Am 3. Oktober sah der Hund die Katze.",
    "d3": "Le chat dort.",
    "d4": "the dog",
}

QUERIES = {"q1": "the cat", "q2": "der hund"}

QRELS = {"q1": {"d1": 1, "d3": 1}, "q2": {"d2": 1, "d4": 1}}


class LocalTask(AbsTaskRetrieval):
    """Two questions, four German documents."""

    metadata = TaskMetadata(
        name="Local",
        description="a small task",
        reference=None,
        dataset={"path": "local/local", "revision": "1"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["deu-Latn"],
        main_score="ndcg_at_10",
        date=("2026-01-01", "2026-01-02"),
        domains=["Written"],
        task_subtypes=[],
        license="cc0-1.0",
        annotations_creators="derived",
        dialect=[],
        sample_creation="found",
        bibtex_citation="",
    )

    def load_data(self, **kwargs: object) -> None:
        corpus = [{"id": name, "text": text, "title": ""} for name, text in DOCUMENTS.items()]
        queries = [{"id": name, "text": text} for name, text in QUERIES.items()]
        split = {
            "corpus": Dataset.from_list(corpus),
            "queries": Dataset.from_list(queries),
            "relevant_docs": QRELS,
            "top_ranked": None,
        }
        self.dataset = {"default": {"test": split}}
        self.data_loaded = True
