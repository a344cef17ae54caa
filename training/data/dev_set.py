"""How well a model finds the other-language document of dev concepts, by document and by title."""

from __future__ import annotations

import random
import sys
from itertools import permutations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer


class DevSet:
    """Dev concepts, whose documents are sought among themselves and, where these are few, among training documents.

    Args:
        articles: article tables by language.
        num_concepts: the pool's size, drawn by the seed: dev concepts first, filled up with training concepts.
        seed: of that draw.

    Raises:
        ValueError: no concept of the dev split stands in two languages.
    """

    def __init__(self, articles: dict[str, Dataset], num_concepts: int, seed: int) -> None:
        draw = random.Random(seed)
        dev = draw_concepts(articles, "dev", num_concepts, draw)
        pool = dev + draw_concepts(articles, "train", num_concepts - len(dev), draw)
        wanted = pa.array(pool, pa.string())
        self.articles = {
            (language, article["concept_id"]): article
            for language, table in articles.items()
            for article in table.select(np.flatnonzero(pc.is_in(table.data.column("concept_id"), wanted)))
        }
        self.pairs = [
            ((one, concept), (other, concept))
            for concept in sorted(dev)
            for one, other in permutations(articles, 2)
            if (one, concept) in self.articles and (other, concept) in self.articles
        ]
        if not self.pairs:
            raise ValueError(
                "no concept of the dev split stands in two languages of the corpus, by which models are compared; make "
                "the corpus of articles of which a tenth, say, have the split dev, or of documents with a higher "
                "dev_fraction"
            )

    def evaluate(self, model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer) -> dict[str, float]:
        """Mean reciprocal ranks of a concept's document in another language among all documents of that language:
        `document_mrr` by its document, `title_mrr` by its title, and their mean `mrr`, which chooses the best model."""
        keys = list(self.articles)
        languages = np.array([language for language, _ in keys])
        texts = [article["text"] for article in self.articles.values()]
        bar = sys.stderr.isatty()
        documents = model.encode_documents(texts, tokenizer, language=languages.tolist(), show_progress_bar=bar)
        titles = model.encode_queries([self.articles[key]["title"] for key in keys], tokenizer)
        row_of = {key: row for row, key in enumerate(keys)}
        queries = np.array([row_of[query] for query, _ in self.pairs])
        positives = np.array([row_of[positive] for _, positive in self.pairs])
        same_language = languages[positives][:, None] == languages
        scores = {
            name: float(np.mean(1 / ranks_of(vectors[queries] @ documents.T, positives, same_language)))
            for name, vectors in (("document_mrr", documents), ("title_mrr", titles))
        }
        return scores | {"mrr": sum(scores.values()) / 2}


def draw_concepts(articles: dict[str, Dataset], split: str, count: int, draw: random.Random) -> list[str]:
    """Concepts of a split; all of them where there are fewer."""
    columns = [
        table.data.column("concept_id").filter(pc.equal(table.data.column("split"), split))
        for table in articles.values()
    ]
    concepts = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string()).unique().sort()
    return [concepts[index].as_py() for index in draw.sample(range(len(concepts)), min(count, len(concepts)))]


def ranks_of(scores: np.ndarray, positives: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """The rank, from 1, of each row's positive among its candidates: the last of those with an equal score, so that
    nothing is gained by vectors that are all the same.

    Args:
        scores: (queries, documents).
        positives: (queries,), the column of each row's positive.
        candidates: (queries, documents), bool, the documents a row is sought among.

    >>> ranks_of(np.array([[0.5, 0.9, 0.7]]), np.array([2]), np.array([[True, True, True]]))
    array([2])
    """
    own = np.take_along_axis(scores, positives[:, None], axis=1)
    return ((scores >= own) & candidates).sum(axis=1)
