"""Sentences seek their translations among sentences of another language (tasks `translation_search`), by cosine: both
sides are read as queries. Each pair of languages has a set of its own, the folder <data>/<pair>."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.datasets.retrieval_sets import RetrievalSet
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
    first, *others = (
        retrieval.evaluate_system(SentenceSystem(system), replace(task, pairs=[pair]), data[pair], run)
        for pair in task.pairs
    )
    for other in others:
        for name in ("rows", "per_item"):
            first[name] |= other[name]
    for name in ("unknown_in_qrels", "empty_documents"):  # which are of one pair
        del first[name]
    groups = retrieval.groups_of(task.pairs, task.training_languages, both_languages=True)
    return first | {"averages": averages(first["rows"], groups, list(retrieval.RETRIEVAL_MEASURES))}
