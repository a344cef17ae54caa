"""Rankings of the documents of an index for a query in any language:

dense   by the cosine of the vectors of document and query
bm25    by BM25 over stems; documents that share no term with the query are left out
hybrid  by the cosine plus the scaled BM25 score, among the best documents of both
late    the best documents of hybrid, ranked again: the mean of the cosines of the document and of its best sentence
        takes the place of the document's cosine
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from modeling_hmde import Explanation
from modeling_hmde.attribution_hmde import Scoring, score_sentences
from search.bm25 import query_terms
from search.documents import Document
from search.encoder import Encoder
from search.index import Index

Ranking = Literal["dense", "bm25", "hybrid", "late"]

# `hybrid` fuses at least so many documents by cosine with as many by BM25; `late` ranks at least so many again.
CANDIDATES = 50

# The weight of BM25 in `hybrid` and `late`: BM25 scores, divided by the largest, are scaled to this share of the range
# of the cosines of the nearest documents, because that range differs from model to model. Tuned on the development sets
# (docs/search.md): a larger weight helps within one language, and harms if documents in several languages compete,
# because those in the query's own language share more terms with it.
BM25_WEIGHT = 0.1


class UnknownLanguage(ValueError):
    """A language is asked for in which the index has no document."""


class Hit(NamedTuple):
    """A document, its score in the ranking that was asked for, and how well its sentences match the query."""

    document: Document
    score: float
    explanation: Explanation

    def to_dict(self, num_sentences: int | None = None) -> dict[str, Any]:
        """What JSON shows of a hit: the document, its score and its best sentences.

        Args:
            num_sentences: at most; all if None.
        """
        sentences = [
            {**sentence._asdict(), "text": self.document.text[sentence.begin : sentence.end]}
            for sentence in self.explanation.sentences[:num_sentences]
        ]
        return asdict(self.document) | {"score": self.score, "sentences": sentences}


def search_index(
    index: Index,
    query: str,
    encoder: Encoder,
    num_hits: int = 5,
    ranking: Ranking = "dense",
    languages: Sequence[str] | None = None,
    scoring: Scoring | None = None,
    vector: np.ndarray | None = None,
) -> list[Hit]:
    """The best documents for a query, best first, each explained by its sentences.

    Args:
        index, query, encoder, ranking, languages, vector: as in `rank`.
        num_hits: documents at most.
        scoring: of the sentences, see `HMDEForDocumentEmbedding.explain`. If None, `contribution` where the sentence
            scores add up to the document's score, and `maximum` elsewhere.
    """
    if vector is None:
        (vector,) = encoder.encode_queries([query])
    scores, explained = _rank(index, query, encoder, ranking, num_hits, languages, vector)
    documents = index.documents(list(scores))
    if scoring is None:
        adds_up = ranking == "dense" and encoder.model.config.document_pooling != "dbos"
        scoring = "contribution" if adds_up else "maximum"
    if scoring == "maximum" and explained:
        explanations = [explained[id] for id in scores]
    else:
        explanations = _explain(index, vector, documents, encoder, scoring)
    return [Hit(*hit) for hit in zip(documents, scores.values(), explanations)]


def rank(
    index: Index,
    query: str,
    encoder: Encoder,
    ranking: Ranking = "dense",
    depth: int = 1000,
    languages: Sequence[str] | None = None,
    vector: np.ndarray | None = None,
) -> dict[str, float]:
    """The scores of the best documents by id, best first; documents with equal scores are ordered by id.

    Args:
        index: the documents.
        query: one text.
        encoder: the model that made the index, see `Index.check`.
        ranking: see the description of this file.
        depth: documents at most. `hybrid` and `late` consider at least CANDIDATES.
        languages: only documents in these (ISO 639-1); in all if None.
        vector: (hidden,), the query's, if it is known already: many queries are encoded faster together.

    Raises:
        UnknownLanguage: the index has no document in a language.
        ValueError: its files are damaged.
    """
    return _rank(index, query, encoder, ranking, depth, languages, vector)[0]


def _rank(
    index: Index,
    query: str,
    encoder: Encoder,
    ranking: Ranking,
    depth: int,
    languages: Sequence[str] | None,
    vector: np.ndarray | None,
) -> tuple[dict[str, float], dict[str, Explanation]]:
    """`rank`, and by id the explanations from which `late` takes the best sentences."""
    if languages is not None and (unknown := sorted({*languages} - {*index.languages})):
        known = ", ".join(index.languages) or "none at all"
        raise UnknownLanguage(f"the index has no documents in {', '.join(unknown)}; their languages are: {known}")
    if ranking == "bm25":
        return _best(_bm25(index, query, depth, languages), depth), {}
    if vector is None:
        (vector,) = encoder.encode_queries([query])
    if ranking == "dense":
        return _best(index.nearest(vector, depth, languages), depth), {}

    width = max(depth, CANDIDATES)
    cosines = index.nearest(vector, width, languages)
    bm25 = scaled_bm25(_bm25(index, query, width, languages), cosines)
    cosines |= _cosines(index, vector, [id for id in bm25 if id not in cosines])
    hybrid = {id: cosine + bm25.get(id, 0) for id, cosine in cosines.items()}
    if ranking == "hybrid":
        return _best(hybrid, depth), {}

    candidates = list(_best(hybrid, width))
    explained = dict(zip(candidates, _explain(index, vector, index.documents(candidates), encoder, "maximum")))
    late = {id: (cosines[id] + explained[id].score) / 2 + bm25.get(id, 0) for id in candidates}
    return _best(late, depth), explained


def scaled_bm25(bm25: dict[str, float], cosines: dict[str, float]) -> dict[str, float]:
    """BM25 scores on the scale of cosines, to be added to them: the best document gets BM25_WEIGHT times the range of
    the best CANDIDATES cosines, others less, in proportion to BM25.

    Scores are fused, not ranks (Bruch, Gai and Ingber, ACM TOIS 2023): so a poor BM25 ranking, as across languages,
    changes little.

    Args:
        bm25: BM25 scores by id.
        cosines: those of the nearest documents, by id.

    >>> scaled_bm25({"a": 8.0, "b": 2.0}, {"b": 0.9, "c": 0.8, "d": 0.4})
    {'a': 0.05, 'b': 0.0125}
    """
    if not bm25 or not cosines:
        return {}
    nearest = sorted(cosines.values(), reverse=True)[:CANDIDATES]
    scale = BM25_WEIGHT * (nearest[0] - nearest[-1]) / max(bm25.values())
    return {id: scale * score for id, score in bm25.items()}


def _bm25(index: Index, query: str, depth: int, languages: Sequence[str] | None) -> dict[str, float]:
    terms = query_terms(query, languages or [None, *index.languages])
    return index.bm25(terms, depth, languages)


def _cosines(index: Index, query: np.ndarray, ids: Sequence[str]) -> dict[str, float]:
    return dict(zip(ids, (index.vectors(ids) @ torch.from_numpy(query)).tolist())) if ids else {}


def _explain(
    index: Index, query: np.ndarray, documents: Sequence[Document], encoder: Encoder, scoring: Scoring
) -> list[Explanation]:
    if scoring == "maximum" and index.keeps_sentences:
        sentences = index.sentences([document.id for document in documents])
    else:
        sentences = encoder.encode_sentences(documents, scoring)
    return [score_sentences(torch.from_numpy(query), document) for document in sentences]


def _best(scores: dict[str, float], depth: int) -> dict[str, float]:
    return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:depth])
