"""Rankings of whole collections by cosine, from L2-normalised vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

# Inner products in memory at once, 256 MB.
PRODUCTS_AT_ONCE = 1 << 26
# Vectors compared at once, so that a mapped file is never in memory whole.
VECTORS_AT_ONCE = 1 << 16


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
