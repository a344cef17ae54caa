"""Documents ranked by the nearest of their sentences or windows, alone or beside the document's own vector (kinds
`nearest_sentence`, `nearest_window`, `document_and_sentence`). All documents are compared, as no index does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from evaluation.datasets.languages import languages_of
from evaluation.datasets.retrieval_sets import RetrievalSet
from evaluation.recipes import RetrievalTask, SystemOptions
from evaluation.similarity import Ranking, inner_products, ranked_by
from evaluation.systems import hmde, pieces
from evaluation.tasks import SystemRun
from evaluation.vectors import cached_file, encoded_in_parts, vectors_of_queries
from hmde.common.progress import Advance, progress_bar
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
        with_document: whether the document's own vector counts too, as in `late_score`.
    """

    model: HMDEForDocumentEmbedding
    tokenizer: HMDETokenizer
    with_document: bool

    def rank_pairs(self, retrieval_set: RetrievalSet, task: RetrievalTask, run: SystemRun) -> dict[str, Ranking]:
        """Nothing where the queries are whole documents. Arguments as in `evaluation.tasks.retrieval.RankingSystem`."""
        if retrieval_set.query_source == "documents":
            return {}
        languages = [retrieval_set.collection(languages_of(pair)[1]) for pair in task.pairs]
        needed = {language: retrieval_set.documents[language] for language in chain.from_iterable(languages)}
        with progress_bar(f"{run.bar}: documents", sum(map(len, needed.values()))) as progress:
            vectors = {
                language: self.vectors(documents, language, run, progress.update)
                for language, documents in needed.items()
            }
        encode_queries = partial(self.model.encode_queries, tokenizer=self.tokenizer)
        queries = vectors_of_queries(encode_queries, retrieval_set, task.pairs)
        rankings = {}
        for pair, parts in zip(task.pairs, languages):
            embedded = queries[languages_of(pair)[0]]
            judged = np.stack([embedded[query_id] for query_id in retrieval_set.judgements(pair)])
            scores = self.scores(Vectors.joined([vectors[part] for part in parts]), judged)
            rankings[pair] = ranked_by(scores, retrieval_set, pair, task.depth)
        return rankings

    def vectors(self, documents: Mapping[str, str], language: str, run: SystemRun, advance: Advance) -> Vectors:
        """The vectors of the documents of one language. Cache and errors as in `cached_vectors`."""

        def write(path: Path) -> None:
            with path.open("wb") as file:
                parts = encoded_in_parts(partial(self.encode, language=language), documents, advance)
                np.savez(file, **Vectors.joined(list(parts))._asdict())

        key = f"{run.document_cache_key}-{language}"
        with np.load(cached_file(run.cache, key, ".npz", documents, advance, write)) as kept:
            return Vectors(**kept)

    def encode(self, texts: Sequence[str], language: str) -> Vectors:
        documents, found = self.model.encode_documents(texts, self.tokenizer, language=language, sentences=True)
        parts = [document.vectors.float().cpu().numpy() for document in found]
        return Vectors(documents, np.concatenate(parts), np.array(list(map(len, parts))))

    def scores(self, vectors: Vectors, queries: np.ndarray) -> Iterator[np.ndarray]:
        """(documents,), of each query."""
        by_document = chain.from_iterable(inner_products(vectors.documents, queries))
        by_piece = chain.from_iterable(inner_products(vectors.pieces, queries))
        first_pieces = np.cumsum(vectors.counts) - vectors.counts
        for documents, all_pieces in zip(by_document, by_piece):
            nearest = np.maximum.reduceat(all_pieces, first_pieces)
            yield late_score(documents, nearest, all_pieces[first_pieces]) if self.with_document else nearest


def check(name: str, options: SystemOptions) -> None:
    """Raises:
    ValueError: the model cannot be found or is not of the kind.
    """
    (pieces if options.kind == "nearest_window" else hmde).check(name, options)


def load(options: SystemOptions, dtype: torch.dtype) -> NearestPieceSystem:
    if options.kind == "nearest_window":
        system = pieces.load(replace(options, kind="windows"), dtype)
    else:
        system = hmde.load(options, dtype)
    return NearestPieceSystem(system.model, system.tokenizer, with_document=options.kind == "document_and_sentence")
