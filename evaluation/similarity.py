"""Rankings of whole collections, by cosine of L2-normalised vectors or by other scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from evaluation.datasets.languages import languages_of
from evaluation.datasets.retrieval_sets import RetrievalSet, Run

# Documents of a query in a run, where nothing says how many.
RUN_DEPTH = 1000
# Inner products in memory at once, 256 MB.
PRODUCTS_AT_ONCE = 1 << 26
# Vectors compared at once, so that a mapped file is never in memory whole.
VECTORS_AT_ONCE = 1 << 16


class Ranking(NamedTuple):
    """
    run: the first documents of each query.
    ranks: of the relevant documents of each query in the whole collection, lowest first; None where it is not ranked.
    """

    run: Run
    ranks: dict[str, list[int]] | None = None


def inner_products(vectors: np.ndarray, queries: np.ndarray) -> Iterator[np.ndarray]:
    """All inner products, those of some queries at a time.

    Args:
        vectors: (documents, hidden), float32. A mapped file is read in blocks, never whole.
        queries: (queries, hidden), float32.

    Yields:
        (some queries, documents), in the order of the queries.
    """
    at_once = max(1, PRODUCTS_AT_ONCE // len(vectors))
    for first in range(0, len(queries), at_once):
        some = queries[first : first + at_once]
        products = np.empty((len(some), len(vectors)), dtype=np.float32)
        for begin in range(0, len(vectors), VECTORS_AT_ONCE):
            block = vectors[begin : begin + VECTORS_AT_ONCE]
            products[:, begin : begin + len(block)] = some @ block.T
        yield products


def ranked_by(scores: Iterable[np.ndarray], retrieval_set: RetrievalSet, pair: str, depth: int = 0) -> Ranking:
    """The documents of each query to which the collection has a relevant one. In the pool, a query that was taken from
    a document does not find that document.

    Args:
        scores: of each such query, in the order of the queries: (documents,), which is changed.
        depth: documents that a query ranks at most; 0: all, of which the run has the first RUN_DEPTH.
    """
    doc_ids = retrieval_set.doc_ids(languages_of(pair)[1])
    row_of = {doc_id: row for row, doc_id in enumerate(doc_ids)}
    run: Run = {}
    whole: dict[str, list[int]] = {}
    for (query_id, grades), of_query in zip(retrieval_set.judgements(pair).items(), scores):
        own = row_of.get(retrieval_set.own_document(pair, query_id) or "")
        if own is not None:
            of_query[own] = -np.inf
        first = highest(of_query, depth or RUN_DEPTH)
        run[query_id] = {doc_ids[row]: float(of_query[row]) for row in first if row != own}
        relevant = [row_of[doc_id] for doc_id, grade in grades.items() if grade > 0]
        whole[query_id] = ranks(of_query, relevant, doc_ids)
    return Ranking(run, None if depth else whole)


def highest(scores: np.ndarray, depth: int) -> np.ndarray:
    """The rows of the highest scores of a query (documents,), at most `depth`, highest first."""
    rows = np.argpartition(-scores, depth)[:depth] if depth < len(scores) else np.arange(len(scores))
    return rows[np.lexsort((rows, -scores[rows]))]


def ranks(scores: np.ndarray, rows: Sequence[int], doc_ids: Sequence[str]) -> list[int]:
    """The ranks of some documents in the whole collection, lowest first, from 1. Where scores are equal, the highest id
    stands first, as in trec_eval.

    Args:
        scores: of a query, (documents,).
        rows: of the documents that are asked for.
        doc_ids: of all.
    """
    found = []
    for row in rows:
        before = sum(doc_ids[tied] > doc_ids[row] for tied in np.flatnonzero(scores == scores[row]).tolist())
        found.append(1 + int((scores > scores[row]).sum()) + before)
    return sorted(found)
