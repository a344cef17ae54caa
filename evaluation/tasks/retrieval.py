"""Retrieval across languages: a query in one, documents in another, of which it ranks the whole collection by cosine
(paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Protocol

import numpy as np

from evaluation.datasets.languages import POOL, languages_of
from evaluation.datasets.retrieval_sets import RetrievalSet, Run, read_retrieval_set
from evaluation.measures.retrieval.retrieval import RETRIEVAL_MEASURES, retrieval_values
from evaluation.recipes import RetrievalTask
from evaluation.similarity import RUN_DEPTH, Ranking, inner_products, ranked_by
from evaluation.systems import System
from evaluation.tables import averages
from evaluation.tasks import SystemRun
from evaluation.vectors import Encode, cached_vectors
from hmde.common.files import write_text
from hmde.common.fingerprints import fingerprint
from hmde.common.progress import Advance, no_bar, progress_bar


class RankingSystem(Protocol):
    """A system that ranks whole collections and has no vectors to give, such as BM25."""

    def rank_pairs(self, retrieval_set: RetrievalSet, task: RetrievalTask, run: SystemRun) -> dict[str, Ranking]:
        """The rankings of those pairs of the task that the system can rank. `depth` as in `ranked_by`; a system that
        never ranks a whole collection takes 0 for RUN_DEPTH."""


@dataclass
class Encoded:
    """The vectors of a retrieval set by language, rows in its order.

    Args:
        queries: (queries, hidden).
        documents: (documents, hidden).
    """

    queries: dict[str, np.ndarray]
    documents: dict[str, np.ndarray]


def read(task: RetrievalTask) -> RetrievalSet:
    """The files of a task, whose format is hmde by now.

    Raises:
        ValueError: one is missing or malformed.
    """
    return read_retrieval_set(task.data, task.pairs, task.split, task.query_source)


def evaluate_system(
    system: System | RankingSystem, task: RetrievalTask, retrieval_set: RetrievalSet, run: SystemRun
) -> dict[str, Any]:
    """Everything that is reported of a system on a task. Writes its rankings too."""
    result, runs = evaluate_task(system, task, retrieval_set, run)
    write_runs(runs, run)
    return result


def evaluate_task(
    system: System | RankingSystem, task: RetrievalTask, retrieval_set: RetrievalSet, run: SystemRun
) -> tuple[dict[str, Any], dict[str, Run]]:
    """Everything that is reported of a system, and its runs by pair.

    Args:
        system: what it does not rank is left out, as pairs of two languages by BM25.
        task: the protocol.
        retrieval_set: with the languages of all pairs.
        run: where the vectors and indexes of documents are kept.
    """
    if hasattr(system, "rank_pairs"):
        by = "the system's own scores"
        rankings = system.rank_pairs(retrieval_set, task, run)
    else:
        by = "cosine"
        encoded = encode(system, retrieval_set, task.pairs, run)
        rankings = {pair: rank(encoded, retrieval_set, pair, task.depth) for pair in task.pairs}
    whole = all(ranking.ranks is not None for ranking in rankings.values())
    protocol = f"full ranking by {by}" if whole else f"the first {task.depth or RUN_DEPTH} by {by}"
    result = summary(task, retrieval_set, rankings) | {"protocol": protocol}
    return result, {pair: ranking.run for pair, ranking in rankings.items()}


def summary(task: RetrievalTask, retrieval_set: RetrievalSet, rankings: Mapping[str, Ranking]) -> dict[str, Any]:
    """The scores of rankings by pair, their averages, and the values of each query."""
    values = {
        pair: retrieval_values(retrieval_set.judgements(pair), ranking.run, ranking.ranks)
        for pair, ranking in rankings.items()
    }
    scores = {pair: score(values[pair], ranking.run, retrieval_set, pair) for pair, ranking in rankings.items()}
    documents = retrieval_set.documents
    return {
        "task_type": "text-retrieval",
        "measure": task.measure,
        "rows": scores,
        "averages": averages(scores, groups_of(task.pairs, task.training_languages), list(RETRIEVAL_MEASURES)),
        "per_item": values,
        "unknown_in_qrels": retrieval_set.unknown,
        "empty_documents": {language: getattr(texts, "empty", 0) for language, texts in documents.items()},
    }


def write_runs(runs: Mapping[str, Run], run: SystemRun) -> None:
    for pair, ranked in runs.items():
        write_text(run.output / "runs" / run.task / run.system / f"{pair}.run", to_trec(ranked, tag=run.system))


def encode(system: System, retrieval_set: RetrievalSet, pairs: Sequence[str], run: SystemRun) -> Encoded:
    """The vectors of the queries and documents of some pairs, each language once."""
    query_languages, wanted = (dict.fromkeys(side) for side in zip(*map(languages_of, pairs)))
    document_languages = dict.fromkeys(part for language in wanted for part in retrieval_set.collection(language))
    with progress_bar(f"{run.bar}: queries", texts_in(retrieval_set.queries, query_languages)) as progress:
        queries = {
            language: encode_queries(system, retrieval_set, language, progress.update) for language in query_languages
        }
    with progress_bar(f"{run.bar}: documents", texts_in(retrieval_set.documents, document_languages)) as progress:
        documents = {
            language: cached_vectors(
                partial(system.encode_documents, language=language),
                retrieval_set.documents[language],
                run.cache,
                fingerprint(run.document_cache_key, language),
                progress.update,
            )
            for language in document_languages
        }
    if POOL in wanted:
        documents[POOL] = np.concatenate([documents[language] for language in retrieval_set.collection(POOL)])
    return Encoded(queries, documents)


def texts_in(texts: Mapping[str, Mapping[str, str]], languages: Iterable[str]) -> int:
    return sum(len(texts[language]) for language in languages)


def encode_queries(system: System, retrieval_set: RetrievalSet, language: str, advance: Advance = no_bar) -> np.ndarray:
    encode: Encode = system.encode_queries
    if retrieval_set.query_source == "documents":
        encode = partial(system.encode_documents, language=language)
    return cached_vectors(encode, retrieval_set.queries[language], advance=advance)


def rank(encoded: Encoded, retrieval_set: RetrievalSet, pair: str, depth: int = 0) -> Ranking:
    """The ranking of a pair by cosine. Arguments as in `ranked_by`."""
    query_language, document_language = languages_of(pair)
    judged = retrieval_set.judgements(pair)
    rows = [row for row, name in enumerate(retrieval_set.queries[query_language]) if name in judged]
    scores = inner_products(encoded.documents[document_language], encoded.queries[query_language][rows])
    return ranked_by(chain.from_iterable(scores), retrieval_set, pair, depth)


def in_order(documents: dict[str, float]) -> list[str]:
    """As trec_eval ranks them: by score, and where scores are equal in descending order of ids."""
    return sorted(documents, key=lambda doc_id: (documents[doc_id], doc_id), reverse=True)


def score(
    values: Mapping[str, Mapping[str, float]], run: Run, retrieval_set: RetrievalSet, pair: str
) -> dict[str, float]:
    """The means of the measures of a run, how many queries it answers and skips, and, in the pool, the share of the
    query's own language in the first ten (`own_language@10`)."""
    query_language, document_language = languages_of(pair)
    answered = len(values["MAP"])
    scores = {
        **{name: float(np.mean(list(by_query.values()))) for name, by_query in values.items()},
        "queries": answered,
        "skipped": len(retrieval_set.queries[query_language]) - answered,
    }
    if document_language == POOL:
        own = [doc_id.startswith(f"{query_language}.") for ranked in run.values() for doc_id in in_order(ranked)[:10]]
        scores["own_language@10"] = float(np.mean(own))
    return scores


def to_trec(run: Run, tag: str) -> str:
    """A run file: `query_id Q0 doc_id rank score tag` a line.

    Documents of equal score stand in descending order of their ids, as trec_eval ranks them. It reads scores, not
    ranks, so a score has nine digits, which tell any two float32 apart.

    >>> print(to_trec({"q1": {"d1": 0.5, "d2": 0.75, "d3": 0.5}}, tag="first"), end="")
    q1 Q0 d2 1 0.75 first
    q1 Q0 d3 2 0.5 first
    q1 Q0 d1 3 0.5 first
    """
    lines = []
    for query_id, scores in run.items():
        for rank, doc_id in enumerate(in_order(scores), start=1):
            lines.append(f"{query_id} Q0 {doc_id} {rank} {scores[doc_id]:.9g} {tag}\n")
    return "".join(lines)


def groups_of(
    pairs: Sequence[str], training_languages: Sequence[str], both_languages: bool = False
) -> dict[str, list[str]]:
    """The pairs that are averaged together: all; those whose documents' language training has seen, or with
    `both_languages` both of whose languages, and the others; and by themselves those with the pool."""
    pool = [pair for pair in pairs if languages_of(pair)[1] == POOL]
    single = [pair for pair in pairs if pair not in pool]
    groups = {"average": single}
    if training_languages:
        first = 0 if both_languages else 1
        seen = [pair for pair in single if {*languages_of(pair)[first:]} <= {*training_languages}]
        groups["average, training languages"] = seen
        groups["average, held-out languages"] = [pair for pair in single if pair not in seen]
    return groups | {"average, pool of all languages": pool}
