"""Late interaction of a query with a document and its sentences: both scales are trained, from one pass.

The score of a document is a weighted mean of the cosines of the query with the document's vector, its nearest sentence
vector and its first one, as the ranking `late` has it (see `late_score`). A maximum over vectors of one pass is what
ColBERT (Khattab and Zaharia, 2020) takes over tokens. Beside it, a sentence vector is told from those of the other
sentences of its document, the in-sequence negatives of Conti et al. ("Context is Gold to find the Gold Passage", 2025),
so that a sentence keeps what is its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from hmde.common.numbers import PositiveInt
from modeling_hmde import late_score
from training.losses.batch import BatchVectors
from training.losses.candidates import HardNegatives, same_concept
from training.losses.loss import Loss, Needs


def late_scores(queries: Tensor, documents: Tensor, sentences: Tensor) -> Tensor:
    """The `late_score` of each query with each document.

    Args:
        queries: (queries, hidden).
        documents: (documents, hidden).
        sentences: (documents, sentences, hidden), 0 where there is none.

    Returns:
        (queries, documents)
    """
    queries, documents = F.normalize(queries, dim=-1), F.normalize(documents, dim=-1)
    cosines = queries @ F.normalize(sentences, dim=-1).flatten(0, 1).T
    cosines = cosines.unflatten(1, sentences.shape[:2])  # (queries, documents, sentences)
    nearest = cosines.masked_fill(~sentences.any(dim=-1), -torch.inf).amax(dim=-1)
    return late_score(queries @ documents.T, nearest, cosines[..., 0])


def document_loss(queries: Tensor, vectors: BatchVectors, hard_negatives: HardNegatives) -> Tensor:
    """InfoNCE by the late score, one loss a query. Candidates are documents of this process alone: the sentences of
    others would be many times what is sent now.

    Args:
        queries: (queries, hidden); query i belongs to triple i modulo the number of triples.

    Returns:
        (queries,)
    """
    documents, sentences = vectors.documents, vectors.sentences_by_role
    concepts = documents.concepts
    num_triples = len(concepts["anchor"])
    triple = torch.arange(len(queries), device=queries.device) % num_triples
    scores = late_scores(queries, documents.vectors["positive"], sentences["positive"])
    own = F.one_hot(triple, num_triples).bool()
    masked = same_concept(concepts["anchor"][triple], concepts["positive"]) & ~own
    if hard_negatives != "none":
        negative_scores = late_scores(queries, documents.vectors["negative"], sentences["negative"])
        negative_masked = same_concept(concepts["anchor"][triple], concepts["negative"])
        if hard_negatives == "own":
            negative_masked = negative_masked | ~own
        scores, masked = torch.cat([scores, negative_scores], dim=1), torch.cat([masked, negative_masked], dim=1)
    return F.cross_entropy((scores / vectors.temperature).masked_fill(masked, -torch.inf), triple, reduction="none")


def sentence_loss(queries: Tensor, sentences: Tensor, index: Tensor, temperature: float) -> Tensor:
    """InfoNCE from a sentence that was read by itself to its vector in the document, among those of the document.

    Args:
        queries: (queries, hidden); query i is a sentence of document i modulo the number of documents.
        sentences: (documents, sentences, hidden), 0 where there is none.
        index: (queries,), which sentence of its document each query is.

    Returns:
        (queries,)
    """
    queries = F.normalize(queries, dim=-1).unflatten(0, (-1, len(sentences)))
    cosines = (queries.unsqueeze(-2) * F.normalize(sentences, dim=-1)).sum(dim=-1)
    logits = (cosines / temperature).masked_fill(~sentences.any(dim=-1), -torch.inf)
    return F.cross_entropy(logits.flatten(0, 1), index, reduction="none")


@dataclass(kw_only=True)
class LateInteraction(Loss):
    """InfoNCE from queries to documents by their vectors and their best sentences, and from sentences that are read by
    themselves to the sentence vectors of their document."""

    hard_negatives: HardNegatives = "own"
    """Which hard negatives a query sees: its anchor's own, all of the batch, or none."""

    sentence_queries: PositiveInt = 4
    """How many sentences of each anchor, and how many of each positive, are read by themselves as queries."""

    @property
    def needs(self) -> Needs:
        return Needs(queries=True, sentences=True, sentence_queries=self.sentence_queries)

    def __call__(self, vectors: BatchVectors) -> dict[str, Tensor]:
        """The mean over queries and over the paths by which they are encoded: by documents (`late`), for titles and
        sentences alike, and by sentences of the positives (`sentence`)."""
        index = vectors.batch.sentence_index
        assert index is not None  # it needs sentence queries
        positives = vectors.sentences_by_role["positive"]
        by_document = [document_loss(queries, vectors, self.hard_negatives).mean() for queries in vectors.queries]
        by_sentence = []
        for queries in vectors.sentence_queries:  # the anchors' come first
            by_document.append(document_loss(queries, vectors, self.hard_negatives).mean())
            own = queries[len(index) :]
            by_sentence.append(sentence_loss(own, positives, index, vectors.temperature).mean())
        return {"late": torch.stack(by_document).mean(), "sentence": torch.stack(by_sentence).mean()}
