"""How well a model finds the other-language document of dev concepts, by document and by title."""

from __future__ import annotations

import random

import numpy as np

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

from .data import Triples


class DevSet:
    """Some concepts of the dev split. Each document is sought among all dev documents of its language.

    Args:
        triples: of the dev split.
        num_concepts: how many concepts are kept, drawn by the seed; all if there are fewer.
        seed: of that draw.
    """

    def __init__(self, triples: Triples, num_concepts: int, seed: int) -> None:
        concepts = sorted(set(triples.triples["concept_id"]))
        kept = set(random.Random(seed).sample(concepts, min(num_concepts, len(concepts))))
        self.pairs = [
            ((row["anchor_language"], row["concept_id"]), (row["positive_language"], row["concept_id"]))
            for row in triples.triples
            if row["concept_id"] in kept
        ]
        self.articles = {
            (language, concept): triples.article(concept, language) for pair in self.pairs for language, concept in pair
        }

    def evaluate(self, model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer) -> dict[str, float]:
        """Mean reciprocal ranks: `document_mrr` (anchor to positive), `title_mrr` (anchor's title to positive), and
        their mean `mrr`, by which the best model is chosen."""
        keys = list(self.articles)
        languages = np.array([language for language, _ in keys])
        documents = model.encode_documents(
            [self.articles[key]["text"] for key in keys], tokenizer, language=list(languages)
        )
        titles = model.encode_queries([self.articles[key]["title"] for key in keys], tokenizer)
        place = {key: number for number, key in enumerate(keys)}
        anchors = np.array([place[anchor] for anchor, _ in self.pairs])
        positives = np.array([place[positive] for _, positive in self.pairs])
        same_language = languages[positives][:, None] == languages
        found = {
            name: float(np.mean(1 / ranks_of(vectors[anchors] @ documents.T, positives, same_language)))
            for name, vectors in (("document_mrr", documents), ("title_mrr", titles))
        }
        return found | {"mrr": sum(found.values()) / 2}


def ranks_of(scores: np.ndarray, positives: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """The rank, from 1, of each row's positive among its candidates.

    Args:
        scores: (queries, documents).
        positives: (queries,), the column of each row's positive.
        candidates: (queries, documents), bool, the documents a row is sought among.

    >>> ranks_of(np.array([[0.5, 0.9, 0.7]]), np.array([2]), np.array([[True, True, True]]))
    array([2])
    """
    own = np.take_along_axis(scores, positives[:, None], axis=1)
    return 1 + ((scores > own) & candidates).sum(axis=1)
