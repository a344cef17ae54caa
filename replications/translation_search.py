"""Sentences seek their translations among sentences of another language (tasks `translation_search`), by cosine or by
its margin over that of the neighbours: both sides are read as queries. Each pair of languages has a set of its own, the
folder <data>/<pair>."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.datasets.retrieval_sets import RetrievalSet
from evaluation.similarity import inner_products
from evaluation.systems import System
from evaluation.tables import averages
from evaluation.tasks import SystemRun, retrieval
from hmde.common.fingerprints import fingerprint
from replications.evaluation_recipe import TranslationTask


@dataclass
class SentenceSystem:
    """A system that reads documents as queries."""

    system: System

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        return self.system.encode_queries(queries)

    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        return self.system.encode_queries(documents)


def read(task: TranslationTask) -> dict[str, RetrievalSet]:
    """The set of each pair."""
    return {pair: retrieval.read(replace(task, data=str(Path(task.data) / pair), pairs=[pair])) for pair in task.pairs}


def evaluate_system(
    system: System, task: TranslationTask, data: dict[str, RetrievalSet], run: SystemRun
) -> dict[str, Any]:
    """Each pair of languages is evaluated as a retrieval task by itself, because its sentences have a set of their own;
    then the results of all pairs are put together."""
    run = replace(run, document_cache_key=fingerprint(run.cache_key, "sentences"))
    by: tuple[Any, ...] = ()
    if task.margin_neighbours:
        similarity = partial(margins, neighbours=task.margin_neighbours)
        by = (similarity, f"margin over {task.margin_neighbours} neighbours")
    first, *others = (
        retrieval.evaluate_system(SentenceSystem(system), replace(task, pairs=[pair]), data[pair], run, *by)
        for pair in task.pairs
    )
    for other in others:
        for name in ("rows", "per_item"):
            first[name] |= other[name]
    for name in ("unknown_in_qrels", "empty_documents"):  # which are of one pair
        del first[name]
    groups = retrieval.groups_of(task.pairs, task.training_languages, both_languages=True)
    return first | {"averages": averages(first["rows"], groups, list(retrieval.RETRIEVAL_MEASURES))}


def margins(vectors: np.ndarray, queries: np.ndarray, neighbours: int) -> Iterator[np.ndarray]:
    """As `inner_products`, the ratio margins of Artetxe and Schwenk (2019, "Margin-based Parallel Corpus Mining"): a
    cosine over the mean of two means, of the query's cosines with its nearest documents, and of the document's with its
    nearest queries. A document that is near to every query no longer stands before all others.

    Args:
        vectors, queries: as in `inner_products`, L2-normalised.
        neighbours: how many are nearest (k; 4 there).
    """
    near_documents = np.concatenate([mean_of_nearest(part, neighbours) for part in inner_products(queries, vectors)])
    for products in inner_products(vectors, queries):
        yield products / ((mean_of_nearest(products, neighbours)[:, None] + near_documents) / 2)


def mean_of_nearest(products: np.ndarray, neighbours: int) -> np.ndarray:
    """(queries, documents) -> (queries,), the mean of the highest `neighbours` of each row."""
    count = min(neighbours, products.shape[1])
    return np.partition(products, -count, axis=1)[:, -count:].mean(axis=1)
