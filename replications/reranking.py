"""Re-ranking, as in the code of the HMDE paper's authors (tasks `reranking`): only the first documents of a given run
are ranked anew, by cosine, and the rest keeps its order. Its numbers do not compare with those of a full ranking."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import ir_measures
import numpy as np

from evaluation.datasets.languages import languages_of
from evaluation.datasets.retrieval_sets import RetrievalSet, Run
from evaluation.systems import System
from evaluation.tasks import SystemRun, retrieval
from replications.evaluation_recipe import RerankingTask


class RerankingData(NamedTuple):
    """A set, and the runs to rank anew, by pair."""

    retrieval_set: RetrievalSet
    given: dict[str, Run]


def read(task: RerankingTask) -> RerankingData:
    """
    Raises:
        ValueError: a file is missing or malformed, or a run has a document that the collection lacks.
    """
    retrieval_set = retrieval.read(task)
    given = {pair: read_run(Path(task.rerank) / f"{pair}.run") for pair in task.pairs}
    for pair, run in given.items():
        language = languages_of(pair)[1]
        for doc_id in {doc_id for ranked in run.values() for doc_id in ranked} - {*retrieval_set.documents[language]}:
            raise ValueError(
                f"the given run of {pair} ranks {doc_id}, which docs/{language}.jsonl lacks; give a run on the same "
                "collection"
            )
    return RerankingData(retrieval_set, given)


def read_run(path: Path) -> Run:
    """A ranking as trec_eval reads it.

    Raises:
        ValueError: the file is missing or malformed.
    """
    if not path.is_file():
        raise ValueError(
            f"rerank: {path} is missing, but every pair needs the rankings of another system; write them there, or "
            "leave the pair out"
        )
    run: Run = {}
    try:
        for ranked in ir_measures.read_trec_run(str(path)):
            run.setdefault(ranked.query_id, {})[ranked.doc_id] = ranked.score
    except ValueError as error:
        raise ValueError(
            f"rerank: {path} is no run as trec_eval reads it ({error}); write lines of `query Q0 document rank score "
            "name`"
        ) from error
    return run


def evaluate_system(system: System, task: RerankingTask, data: RerankingData, run: SystemRun) -> dict[str, Any]:
    """The results have the form of a retrieval task's, because they are computed from rankings in the same way."""
    encoded = retrieval.encode(system, data.retrieval_set, task.pairs, run)
    runs = {pair: rerank(encoded, data.retrieval_set, pair, data.given[pair], task.rerank_depth) for pair in task.pairs}
    retrieval.write_runs(runs, run)
    rankings = {pair: retrieval.Ranking(ranked) for pair, ranked in runs.items()}
    protocol = f"re-ranking of the first {task.rerank_depth} of {Path(task.rerank).name}"
    return retrieval.summary(task, data.retrieval_set, rankings) | {"protocol": protocol}


def rerank(encoded: retrieval.Encoded, retrieval_set: RetrievalSet, pair: str, given: Run, depth: int) -> Run:
    """A given run, the first `depth` documents of each query in the order of their cosines, the rest behind them."""
    query_language, document_language = languages_of(pair)
    documents, queries = encoded.documents[document_language], encoded.queries[query_language]
    row_of = {doc_id: row for row, doc_id in enumerate(retrieval_set.documents[document_language])}
    judged = retrieval_set.judgements(pair)
    run: Run = {}
    for query, query_id in zip(queries, retrieval_set.queries[query_language]):
        if query_id in judged:
            ranked = retrieval.in_order(given.get(query_id, {}))
            first, rest = ranked[:depth], ranked[depth:]
            cosines = documents[np.array([row_of[doc_id] for doc_id in first], dtype=int)] @ query
            behind = {doc_id: -2.0 - place for place, doc_id in enumerate(rest)}  # no cosine is as low
            run[query_id] = dict(zip(first, map(float, cosines))) | behind
    return run
