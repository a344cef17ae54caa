"""Rankings of the documents of an index for a query in any language:

dense   by the cosine of the vectors of document and query
bm25    by BM25 over stems; documents that share no term with the query are left out
hybrid  by the cosine plus the scaled BM25 score, among the best documents of both; BM25 decides among documents of one
        language only
late    as hybrid, and among the documents with the best sentences, too: the weighted mean of the cosines of the
        document, of its best sentence and of its first takes the place of the document's cosine
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hmde.index import Ranking
from hmde.index.bm25 import query_terms, terms
from hmde.index.codes import cosines_of
from hmde.index.encoder import Encoder
from hmde.index.snapshot import Snapshot
from modeling_hmde import late_score

# `hybrid` fuses at least so many documents by cosine with as many by BM25. `late` ranks at least so many of them again.
CANDIDATES = 50

# Beside these, `late` ranks the documents with the best sentences by their signs: so many times as many, because signs
# tell only nearly which are best.
MORE_BY_SENTENCES = 4

# What words may take from a document without those of the best one: shares of the range of the cosines of the nearest
# documents, because that range differs from model to model. SOME_WORDS counts from the first word of the query that a
# language's best document holds; ALL_WORDS as far as it holds more than ENOUGH of them, and the others hold fewer:
# then they name that document. Chosen on the development sets (docs/journal).
SOME_WORDS, ALL_WORDS, ENOUGH = 0.3, 1.5, 0.6


def rank(
    index: Snapshot,
    query: str,
    encoder: Encoder,
    ranking: Ranking = "dense",
    depth: int = 1000,
    languages: Sequence[str] | None = None,
    where: str | None = None,
    vector: np.ndarray | None = None,
) -> dict[str, float]:
    """The scores of the best documents by id, best first; documents with equal scores are ordered by id.

    Args:
        index: the documents.
        query: one text.
        encoder: the model that made the index, see `Snapshot.check`.
        ranking: see the description of this file.
        depth: documents at most. `hybrid` and `late` consider at least CANDIDATES.
        languages, where, vector: as in `Index.search`, as are the errors.
    """
    condition = index.condition(languages, where)
    if ranking == "bm25":
        return _best(index.bm25(_terms(index, query, languages), depth, condition), depth)
    if vector is None:
        (vector,) = encoder.encode_queries([query])
    if ranking == "dense":
        return _best(index.nearest(vector, depth, condition), depth)

    width = max(depth, CANDIDATES)
    nearest = index.nearest(vector, width, condition)
    bm25 = index.bm25(_terms(index, query, languages), width, condition)
    by_sentences: list[str] = []
    if ranking == "late" and index.keeps_sentences:
        by_sentences = index.nearest_sentences(vector, MORE_BY_SENTENCES * width, condition)
    ids = [*dict.fromkeys([*nearest, *bm25, *by_sentences])]
    vectors, languages_found = index.vectors_and_languages(ids)
    cosines = dict(zip(ids, cosines_of(vectors, vector).tolist()))
    words = scaled_bm25(bm25, cosines, languages_found, _coverages(index, query, bm25, languages_found))
    hybrid = _best({id: cosine + words[id] for id, cosine in cosines.items()}, width)
    if ranking == "hybrid":
        return _best(hybrid, depth)

    candidates = list(cosines) if index.keeps_sentences else list(hybrid)  # without sentences, each is encoded
    sentences = zip(candidates, *_cosines_of_sentences(index, encoder, vector, candidates))
    return _best({id: late_score(cosines[id], best, first) + words[id] for id, best, first in sentences}, depth)


def _cosines_of_sentences(
    index: Snapshot, encoder: Encoder, vector: np.ndarray, ids: Sequence[str]
) -> tuple[list[float], list[float]]:
    """As `Snapshot.cosines_of_sentences`, also in an index that keeps none."""
    if index.keeps_sentences:
        return index.cosines_of_sentences(vector, ids)
    encoded = encoder.encode_sentences(index.documents(ids))
    found = [document.vectors @ torch.from_numpy(vector) for document in encoded]
    return [float(cosines.max()) for cosines in found], [float(cosines[0]) for cosines in found]


def scaled_bm25(
    bm25: dict[str, float],
    cosines: dict[str, float],
    languages: dict[str, str | None],
    coverages: dict[str, float],
) -> dict[str, float]:
    """What is added to the cosine of each document for its words: 0 for the one of each language that BM25 ranks first,
    and less for others, in proportion to BM25.

    BM25 compares documents of one language only, because those in the query's own language share more terms with it
    whatever they are about. It counts as far as a language's best document holds the terms of the query: across
    languages, these are few and tell little. If it holds most of them, and the third best has a much lower score,
    because it lacks the rare ones, words decide: an identifier or a name is sought. Scores are fused, not ranks (Bruch,
    Gai and Ingber, ACM TOIS 2023), so that a poor BM25 ranking changes little.

    Args:
        bm25: BM25 scores by id.
        cosines: by id, those of the nearest documents and of all that have a BM25 score.
        languages: of these, by id.
        coverages: of the documents that BM25 ranks first in their languages, by id, the share of the query's terms, 0
            to 1, that they hold.

    >>> languages = {"a": "en", "b": "en", "c": "en", "d": "de"}
    >>> scaled_bm25({"a": 8.0, "b": 4.0}, {"a": 0.9, "b": 0.8, "c": 0.4, "d": 0.7}, languages, {"a": 0.5})
    {'a': 0.0, 'b': -0.0375, 'c': -0.075, 'd': 0.0}
    >>> scaled_bm25({"a": 8.0, "b": 4.0}, {"a": 0.9, "b": 0.8, "c": 0.4, "d": 0.7}, languages, {"a": 1.0})
    {'a': 0.0, 'b': -0.45, 'c': -0.9, 'd': 0.0}
    """
    nearest = sorted(cosines.values(), reverse=True)[:CANDIDATES]
    added = dict.fromkeys(cosines, 0.0)
    for first, coverage in coverages.items():
        alike = [id for id in cosines if languages[id] == languages[first]]
        shares = {id: bm25.get(id, 0.0) / bm25[first] for id in alike}
        third = sorted([*shares.values(), 0.0, 0.0], reverse=True)[2]
        most = max(coverage - ENOUGH, 0) / (1 - ENOUGH)
        weight = (nearest[0] - nearest[-1]) * (SOME_WORDS * coverage + ALL_WORDS * most * (1 - third))
        added |= {id: weight * (share - 1) for id, share in shares.items()}
    return added


def _coverages(
    index: Snapshot, query: str, bm25: dict[str, float], languages: dict[str, str | None]
) -> dict[str, float]:
    """The share of the query's terms that each document holds which BM25 ranks first in its language, by id."""
    firsts = {languages[id]: id for id in reversed(_best(bm25, len(bm25)))}  # a better document replaces a worse one
    asked = [{*terms(query, language)} for language in firsts]
    rows = index.rows(list(firsts.values()), ["id", "words"])["words"].to_pylist() if firsts else []
    return {
        id: len(wanted & {*words.split(" ")}) / len(wanted) for id, wanted, words in zip(firsts.values(), asked, rows)
    }


def _terms(index: Snapshot, query: str, languages: Sequence[str] | None) -> list[str]:
    return query_terms(query, languages or [None, *index.languages])


def _best(scores: dict[str, float], depth: int) -> dict[str, float]:
    return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:depth])
