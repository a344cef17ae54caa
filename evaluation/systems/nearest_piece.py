"""Documents ranked by the nearest of their sentences or windows, alone or beside the document's own vector (kinds
`nearest_sentence`, `nearest_window`, `both_scales`). All documents are compared, as no index does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from common.files import file_written_whole, locked
from common.progress import Advance, progress_bar
from evaluation.datasets.languages import languages_of
from evaluation.datasets.retrieval_sets import RetrievalSet, Run
from evaluation.recipes import SystemOptions
from evaluation.similarity import highest, inner_products
from evaluation.systems import hmde, pieces
from evaluation.vectors import encoded_in_parts, fingerprint_of_documents, vectors_of_queries
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer, late_score


class Vectors(NamedTuple):
    """The L2-normalised vectors of a collection, float32.

    Args:
        documents: (documents, hidden).
        pieces: (pieces, hidden), those of the first document first.
        counts: (documents,), how many pieces each document has; at least one.
    """

    documents: np.ndarray
    pieces: np.ndarray
    counts: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[Vectors]) -> Vectors:
        return cls(*map(np.concatenate, zip(*parts)))


@dataclass
class NearestPieceSystem:
    """
    Args:
        model: on its device, in its dtype.
        tokenizer: decides what the pieces of a document are.
        both_scales: whether the document's own vector counts too, as in `late_score`.
    """

    model: HMDEForDocumentEmbedding
    tokenizer: HMDETokenizer
    both_scales: bool

    def rank_pairs(
        self,
        retrieval_set: RetrievalSet,
        pairs: Sequence[str],
        depth: int,
        cache: Path | None = None,
        cache_key: str = "",
        name: str = "",
    ) -> dict[str, Run]:
        """Nothing where the queries are whole documents. Arguments as in `evaluation.tasks.retrieval.RankingSystem`."""
        if retrieval_set.query_source == "documents":
            return {}
        languages = [retrieval_set.collection(languages_of(pair)[1]) for pair in pairs]
        needed = {language: retrieval_set.documents[language] for language in chain.from_iterable(languages)}
        with progress_bar(name and f"{name}: documents", sum(map(len, needed.values()))) as progress:
            vectors = {
                language: self.vectors(documents, language, cache, cache_key, progress.update)
                for language, documents in needed.items()
            }
        queries = vectors_of_queries(self.encode_queries, retrieval_set, pairs)
        return {
            pair: self.rank(
                retrieval_set,
                pair,
                queries[languages_of(pair)[0]],
                Vectors.joined([vectors[part] for part in parts]),
                depth,
            )
            for pair, parts in zip(pairs, languages)
        }

    def vectors(
        self, documents: Mapping[str, str], language: str, cache: Path | None, cache_key: str, advance: Advance
    ) -> Vectors:
        """The vectors of the documents of one language, from the cache if they are there."""
        with ExitStack() as stack:
            if cache is not None:
                path = cache / f"{cache_key}-{language}-{fingerprint_of_documents(documents)}.npz"
                stack.enter_context(locked(path))
                if path.exists():
                    advance(len(documents))
                    return Vectors(**np.load(path))
            parts = encoded_in_parts(lambda texts: self.encode(texts, language), documents, advance)
            vectors = Vectors.joined(list(parts))
            if cache is not None:
                with file_written_whole(path) as partial, open(partial, "wb") as file:
                    np.savez(file, **vectors._asdict())
        return vectors

    def encode(self, texts: Sequence[str], language: str) -> Vectors:
        documents, found = self.model.encode_documents(texts, self.tokenizer, language=language, sentences=True)
        parts = [document.vectors.float().cpu().numpy() for document in found]
        return Vectors(documents, np.concatenate(parts), np.array(list(map(len, parts))))

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        """(queries, hidden), float32, L2-normalised rows."""
        return self.model.encode_queries(queries, self.tokenizer)

    def rank(
        self,
        retrieval_set: RetrievalSet,
        pair: str,
        query_vectors: Mapping[str, np.ndarray],
        vectors: Vectors,
        depth: int,
    ) -> Run:
        """The `depth` best documents of each query. In the pool, a query that was taken from a document does not find
        that document."""
        queries = retrieval_set.judged_queries(pair)
        embedded = np.stack([query_vectors[query_id] for query_id in queries])
        by_document = chain.from_iterable(inner_products(vectors.documents, embedded))
        by_piece = chain.from_iterable(inner_products(vectors.pieces, embedded))
        first_pieces = np.cumsum(vectors.counts) - vectors.counts
        doc_ids = retrieval_set.doc_ids(languages_of(pair)[1])
        run: Run = {}
        for query_id, documents, all_pieces in zip(queries, by_document, by_piece):
            scores = np.maximum.reduceat(all_pieces, first_pieces)
            if self.both_scales:
                scores = late_score(documents, scores)
            ranked = {doc_ids[row]: float(scores[row]) for row in highest(scores, depth + 1)}
            ranked.pop(retrieval_set.own_document(pair, query_id) or "", None)
            run[query_id] = dict(list(ranked.items())[:depth])
        return run


def check(name: str, options: SystemOptions) -> None:
    """Raises:
    ValueError: the model cannot be found or is not of the kind.
    """
    (pieces if options.kind == "nearest_window" else hmde).check(name, options)


def load(options: SystemOptions, dtype: torch.dtype = torch.float32) -> NearestPieceSystem:
    if options.kind == "nearest_window":
        system = pieces.load(replace(options, kind="windows"), dtype)
    else:
        system = hmde.load(options, dtype)
    return NearestPieceSystem(system.model, system.tokenizer, both_scales=options.kind == "both_scales")
