"""The rankings of hmde/index that are more than a cosine of two vectors (kinds `hybrid`, `hybrid_first` and
`late`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from evaluation.datasets.languages import languages_of
from evaluation.datasets.retrieval_sets import RetrievalSet, Run, texts_of
from evaluation.recipes import RetrievalTask, SystemOptions
from evaluation.similarity import RUN_DEPTH, Ranking
from evaluation.systems import hmde, pieces
from evaluation.tasks import SystemRun
from evaluation.vectors import fingerprint_of_documents, vectors_of_queries
from hmde.common.fingerprints import fingerprint
from hmde.common.progress import progress_bar
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

if TYPE_CHECKING:  # needs the extra `search`
    from hmde.documents.documents import Document


@dataclass
class Collection:
    """The documents of a document language, as hmde reads them, with their ids in a run."""

    retrieval_set: RetrievalSet
    document_language: str

    def __iter__(self) -> Iterator[Document]:
        from hmde.documents.documents import Document  # needs the extra `search`

        ids = iter(self.retrieval_set.doc_ids(self.document_language))
        for language in self.retrieval_set.collection(self.document_language):
            for text in texts_of(self.retrieval_set.documents[language]):
                yield Document(next(ids), "", language, text)


@dataclass
class SearchSystem:
    """What `hmde query` shows: the rankings of hmde/index/ranking.py that need more than two vectors.

    Args:
        name: folder or Hub name of the model.
        model: on its device, in its dtype.
        tokenizer: the model's.
        ranking: see hmde/index/ranking.py.
    """

    name: str
    model: HMDEForDocumentEmbedding
    tokenizer: HMDETokenizer
    ranking: Literal["hybrid", "late"]

    def rank_pairs(self, retrieval_set: RetrievalSet, task: RetrievalTask, run: SystemRun) -> dict[str, Ranking]:
        """What search finds; nothing where the queries are whole documents. The indexes lie in the cache. Arguments
        as in `evaluation.tasks.retrieval.RankingSystem`."""
        if retrieval_set.query_source == "documents":
            return {}
        encode_queries = partial(self.model.encode_queries, tokenizer=self.tokenizer)
        vectors = vectors_of_queries(encode_queries, retrieval_set, task.pairs)
        rankings = {}
        for pair in task.pairs:
            query_language, document_language = languages_of(pair)
            languages = retrieval_set.collection(document_language)
            made_from = [(part, fingerprint_of_documents(retrieval_set.documents[part])) for part in languages]
            index = run.cache / f"{fingerprint(run.document_cache_key, made_from)}.index"
            queries, depth = vectors[query_language], task.depth or RUN_DEPTH
            rankings[pair] = Ranking(self.rank(retrieval_set, pair, queries, index, depth, f"{run.bar}: {pair}"))
        return rankings

    def rank(
        self,
        retrieval_set: RetrievalSet,
        pair: str,
        vectors: Mapping[str, np.ndarray],
        folder: Path,
        depth: int,
        name: str,
    ) -> Run:
        """The documents of each query: the first as a user finds them, behind them the nearest of the others. In the
        pool, a query that was taken from a document does not find that document.

        The score is the negated rank, so that no two are equal: search and trec_eval order equal scores differently.

        Args:
            vectors: (hidden,), of each query.
            folder: where the index is kept.
            depth: documents a query ranks at most.
            name: of the progress bar.
        """
        from hmde.index.encoder import Encoder  # needs the extra `search`
        from hmde.index.ranking import CANDIDATES, rank
        from hmde.index.snapshot import open_snapshot
        from hmde.index.update import update_index

        encoder = Encoder(self.name, self.model, self.tokenizer)
        documents = Collection(retrieval_set, languages_of(pair)[1])
        update_index(folder, documents, encoder, sentences=self.ranking == "late")
        index = open_snapshot(folder)
        queries = retrieval_set.judged_queries(pair)
        run: Run = {}
        with progress_bar(name, len(queries), unit="query") as progress:
            for query_id, text in queries.items():
                vector = vectors[query_id]
                first = rank(index, text, encoder, self.ranking, CANDIDATES, vector=vector)
                ranked = dict.fromkeys([*first, *rank(index, text, encoder, "dense", depth + 1, vector=vector)])
                ranked.pop(retrieval_set.own_document(pair, query_id) or "", None)
                run[query_id] = {doc_id: -float(place) for place, doc_id in zip(range(depth), ranked)}
                progress.update()
        return run


def check(name: str, options: SystemOptions) -> None:
    """
    Raises:
        ValueError: the extra `search` is not installed, or the model cannot be found or is no HMDE.
    """
    try:
        import_module("hmde.index.snapshot")
    except ImportError as error:
        raise ValueError(f"{name}: kind {options.kind} needs search ({error}); pip install '.[search]'") from None
    (pieces if options.kind == "hybrid_first" else hmde).check(name, options)


def load(options: SystemOptions, dtype: torch.dtype) -> SearchSystem:
    ranking: Any = options.kind.removesuffix("_first")
    first = replace(options, kind="first")
    system = pieces.load(first, dtype) if options.kind == "hybrid_first" else hmde.load(options, dtype)
    return SearchSystem(options.model, system.model, system.tokenizer, ranking)
