"""Which documents of several languages belong together, and which are only near, by their vectors. Knows no texts.

Documents have rows, counted through all languages. FAISS finds their neighbours, in memory that is that of the vectors
and, beyond `FLAT` of a language, as much again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

import faiss
import numpy as np

FLAT = 200_000  # vectors of a language that are searched one by one; more are divided into lists
PROBES = 32  # lists that are searched then
MARGIN_NEIGHBOURS = 4  # as in Artetxe and Schwenk 2019

Search = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


class Mates(NamedTuple):
    """Pairs of documents of two languages, each the best of its language for the other; the largest margin first."""

    rows: np.ndarray  # (pairs, 2)
    margins: np.ndarray  # (pairs,)


def searcher(vectors: np.ndarray) -> Search:
    """What takes queries (queries, hidden) and k, and gives the cosines and the rows (queries, k) of the nearest.

    Args:
        vectors: (documents, hidden), float32, L2-normalised.
    """
    if len(vectors) <= FLAT:
        return lambda queries, k: faiss.knn(queries, vectors, min(k, len(vectors)), metric=faiss.METRIC_INNER_PRODUCT)
    lists = int(4 * len(vectors) ** 0.5)
    index = faiss.index_factory(vectors.shape[1], f"IVF{lists},SQfp16", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors[:: max(1, len(vectors) // (40 * lists))])
    index.add(vectors)
    faiss.extract_index_ivf(index).nprobe = PROBES
    return index.search


def find_mates(vectors: np.ndarray, languages: np.ndarray) -> Mates:
    """The mutual best documents of every two languages by the margin, which is the cosine of two documents by the mean
    of their cosines with their nearest (Artetxe and Schwenk 2019, "ratio").

    Args:
        vectors: (documents, hidden), float32, L2-normalised.
        languages: (documents,)
    """
    rows = rows_by(languages)
    searches = {language: searcher(vectors[members]) for language, members in rows.items()}
    found = [(np.empty((0, 2), int), np.empty(0))]
    for one, other in combinations(rows, 2):
        forward = searches[other](vectors[rows[one]], MARGIN_NEIGHBOURS)
        backward = searches[one](vectors[rows[other]], MARGIN_NEIGHBOURS)
        own, mates, margins = _mutual_best(forward, backward)
        found.append((np.stack([rows[one][own], rows[other][mates]], axis=1), margins))
    pairs, margins = map(np.concatenate, zip(*found))
    order = np.argsort(-margins, kind="stable")
    return Mates(pairs[order], margins[order])


def connect(mates: np.ndarray, languages: Sequence[str]) -> list[int]:
    """The concept of each document, named by its first row: mates, and mates of mates, one document a language.

    Args:
        mates: (pairs, 2), rows; of two that contradict each other, the first one counts.

    >>> connect(np.array([[0, 1], [1, 2], [3, 2]]), ["de", "en", "fr", "de"])
    [0, 0, 0, 3]
    """
    concepts = list(range(len(languages)))
    members = [[row] for row in concepts]
    for one, other in mates.tolist():
        first, second = sorted((concepts[one], concepts[other]))
        spoken = [languages[row] for row in (*members[first], *members[second])]
        if first != second and len({*spoken}) == len(spoken):
            members[first] += members[second]
            for row in members[second]:
                concepts[row] = first
    return concepts


def lowest_cosines(vectors: np.ndarray, concepts: np.ndarray) -> np.ndarray:
    """(documents,): the cosine of each document with the farthest of its concept; 0 if it is alone."""
    lowest = np.zeros(len(vectors), np.float32)
    for members in rows_by(concepts).values():
        if len(members) > 1:
            lowest[members] = (vectors[members] @ vectors[members].T).min(axis=1)
    return lowest


def nearest_within(vectors: np.ndarray, groups: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The cosines and rows (documents, k + 1) of the nearest documents of the same group, nearest first. In place of
    the document itself, and where a group has fewer, the row is -1.

    Args:
        groups: (documents,)
    """
    cosines = np.zeros((len(vectors), k + 1), np.float32)
    nearest = np.full((len(vectors), k + 1), -1)
    for members in rows_by(groups).values():
        found, places = searcher(vectors[members])(vectors[members], k + 1)
        cosines[members, : found.shape[1]] = found
        nearest[members, : found.shape[1]] = np.where(places < 0, -1, members[places])
    nearest[nearest == np.arange(len(vectors))[:, None]] = -1
    return cosines, nearest


def rows_by(labels: np.ndarray) -> dict[str, np.ndarray]:
    """The rows that have each label, in the order of the labels."""
    names, first = np.unique(np.sort(labels), return_index=True)
    return dict(zip(names.tolist(), np.split(np.argsort(labels, kind="stable"), first[1:])))


def _mutual_best(
    forward: tuple[np.ndarray, np.ndarray], backward: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of two languages that are each other's best by the margin, and their margins."""
    for cosines, places in (forward, backward):
        cosines[places < 0] = 0  # lists that hold fewer
    best, margins = _best(*forward, backward[0])
    best_of_other, _ = _best(*backward, forward[0])
    own = np.flatnonzero(best_of_other[best] == np.arange(len(best)))
    return own, best[own], margins[own]


def _best(cosines: np.ndarray, places: np.ndarray, cosines_of_others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(queries,): of each query the place of the best by the margin, and the margin.

    Args:
        cosines, places: (queries, k), of the nearest of the other language.
        cosines_of_others: (documents of the other language, k), of their nearest.
    """
    margins = 2 * cosines / (cosines.mean(axis=1, keepdims=True) + cosines_of_others.mean(axis=1)[places])
    first = margins.argmax(axis=1)[:, None]
    return np.take_along_axis(places, first, 1)[:, 0], np.take_along_axis(margins, first, 1)[:, 0]
