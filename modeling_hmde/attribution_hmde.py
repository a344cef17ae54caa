"""Which sentences of a document match a query: pure functions on token offsets and vectors, no parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from torch import Tensor

Scoring = Literal["contribution", "maximum"]
Score = TypeVar("Score", float, np.ndarray, Tensor)

# The shares of the best and of the first sentence in the score of a document by both scales. Chosen on the development
# sets (docs/journal): a larger share of the best sentence finds more details of long documents, a smaller one more
# titles; the first sentence often says what a document is about, as a title does.
BEST_SENTENCE, FIRST_SENTENCE = 0.6, 0.1


class DocumentSentences(NamedTuple):
    """The sentences of one document, each with a vector whose dot product with a query embedding is its score.

    Args:
        spans: begin and end of each sentence, in characters of the text as it was given. A sentence longer than
            `max_sentence_length` is split, and each part counts as a sentence. A sentence without text is (0, 0).
        vectors: (sentences, hidden).
        embedding: (hidden,), whose dot product with a query embedding is the document's score. None: the score of
            the document is that of its best sentence.
    """

    spans: list[tuple[int, int]]
    vectors: Tensor
    embedding: Tensor | None


class SentenceScore(NamedTuple):
    """A sentence, `text[begin:end]`, and its score for a query."""

    begin: int
    end: int
    score: float


class Explanation(NamedTuple):
    """The score of a document for a query, and its sentences, highest score first."""

    score: float
    sentences: list[SentenceScore]


def late_score(document: Score, best_sentence: Score, first_sentence: Score) -> Score:
    """The score of a document by both scales: a weighted mean of the cosines of the query with the document's vector,
    with its nearest sentence vector and with its first one.

    Args:
        document, best_sentence, first_sentence: the cosines, or arrays of them of one shape.
    """
    document_share = 1 - BEST_SENTENCE - FIRST_SENTENCE
    return document_share * document + BEST_SENTENCE * best_sentence + FIRST_SENTENCE * first_sentence


def spans_of_sentences(
    text: str, sentence_ids: Sequence[int], offsets: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Begin and end of each sentence of a row of tokens, in characters of the text, without white space around it.

    Args:
        text: the document.
        sentence_ids: (tokens,), of each token the index of its sentence; -1 for padding at the end.
        offsets: (tokens,), begin and end of each token in the text; (0, 0) for tokens that stand for no text.

    >>> spans_of_sentences("Yes. It is.", [0, 0, 1, 1, 1], [(0, 0), (0, 4), (0, 0), (4, 7), (7, 11)])
    [(0, 4), (5, 11)]
    """
    sentences: list[list[tuple[int, int]]] = [[] for _ in range(max(sentence_ids) + 1)]
    for sentence, (begin, end) in zip(sentence_ids, offsets):
        if begin < end:
            sentences[sentence].append((begin, end))
    spans = []
    for tokens in sentences:
        begin, end = (tokens[0][0], tokens[-1][1]) if tokens else (0, 0)
        end = begin + len(text[begin:end].rstrip())
        # The first token of XLM-R's kind includes the space before its word.
        spans.append((end - len(text[begin:end].lstrip()), end))
    return spans


def contributions(states: Tensor, weights: Tensor, embedding: Tensor) -> Tensor:
    """The contribution of each sentence to the document embedding, a vector (sentences, hidden).

    Where the embedding is a mean over sentences, the contributions add up to it, at unit length. With "mean_with_dbos",
    they add up to it without the DBOS vector's part.

    The weighted state of a sentence alone would favour long sentences under "token_mean": a large weight gives a large
    dot product with every query. So the sum is shared evenly, and a sentence adds to its share, by its weight, only its
    difference from the mean. With equal weights this equals the weighted state.

    Args:
        states: (sentences, hidden), contextualised sentence vectors.
        weights: (sentences,), of each sentence in the mean. What is missing to 1 is the weight of the DBOS vector.
        embedding: (hidden,), of any length.
    """
    parts = weights.unsqueeze(1) * states / embedding.norm()
    return parts - (weights / weights.sum()).unsqueeze(1) * parts.sum(dim=0) + parts.mean(dim=0)


def score_sentences(query: Tensor, document: DocumentSentences) -> Explanation:
    """A document's score for a query, and those of its sentences.

    Args:
        query: (hidden,), the query embedding, of unit length.
        document: of the same model.
    """
    scores = document.vectors @ query
    score = scores.max() if document.embedding is None else document.embedding @ query
    sentences = [SentenceScore(begin, end, own) for (begin, end), own in zip(document.spans, scores.tolist())]
    return Explanation(float(score), sorted(sentences, key=lambda sentence: sentence.score, reverse=True))
