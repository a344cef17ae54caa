"""BM25: the words that query and document share, weighted as in Lucene (kind `bm25`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from evaluation.datasets.languages import languages_of
from evaluation.datasets.retrieval_sets import RetrievalSet, Run, texts_of
from evaluation.recipes import RetrievalTask, SystemOptions
from evaluation.similarity import RUN_DEPTH, Ranking, highest
from evaluation.tasks import SystemRun
from hmde.common.progress import progress_bar


class BM25:
    """The baseline of retrieval within one language. Has no vectors.

    Words are lower-cased and, where Snowball has the language, stemmed. Scripts without spaces between words are read
    as pairs of characters.
    """

    def rank_pairs(self, retrieval_set: RetrievalSet, task: RetrievalTask, run: SystemRun) -> dict[str, Ranking]:
        """The rankings of the pairs of one language. Arguments as in `evaluation.tasks.retrieval.RankingSystem`."""
        rankings = {}
        for pair in task.pairs:
            query_language, language = languages_of(pair)
            if query_language == language:
                documents = retrieval_set.documents[language]
                queries, depth = retrieval_set.judged_queries(pair), task.depth or RUN_DEPTH
                rankings[pair] = Ranking(rank(queries, documents, language, depth, f"{run.bar}: {pair}"))
        return rankings


def rank(queries: Mapping[str, str], documents: Mapping[str, str], language: str, depth: int, name: str = "") -> Run:
    """The `depth` best documents of each query, without those that share no word with it.

    Args:
        queries: text by query_id.
        documents: text by doc_id, in the queries' language.
        language: ISO 639-1 code of both.
        depth: documents a query ranks at most.
        name: of the progress bar.
    """
    import bm25s

    from hmde.index.bm25 import terms  # needs PyStemmer

    index = bm25s.BM25(method="lucene")
    doc_ids = list(documents)
    run: Run = {}
    with progress_bar(name, len(documents) + len(queries), delay=1) as progress:

        def counted_terms(text: str) -> list[str]:
            progress.update()
            return terms(text, language)

        index.index([counted_terms(text) for text in texts_of(documents)], show_progress=False)
        for query_id, text in queries.items():
            known = [term for term in counted_terms(text) if term in index.vocab_dict]
            scores = index.get_scores(known) if known else np.zeros(len(doc_ids), dtype=np.float32)
            run[query_id] = {doc_ids[row]: float(scores[row]) for row in highest(scores, depth) if scores[row] > 0}
    return run


def check(name: str, options: SystemOptions) -> None:
    """Nothing can be wrong."""


def load(options: SystemOptions, dtype: torch.dtype) -> BM25:
    return BM25()
