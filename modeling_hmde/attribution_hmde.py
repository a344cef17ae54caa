"""Which sentences of a document answer to a query: pure functions on token offsets and vectors, no parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from torch import Tensor

Scoring = Literal["contribution", "maximum"]


class DocumentSentences(NamedTuple):
    """The sentences of one document, each with a vector whose dot product with a query embedding is its score.

    Args:
        spans: where each begins and ends, in characters of the text as it was given. A sentence that is too long for
            one place of the document is as many sentences as it takes places; one without text is (0, 0).
        vectors: (sentences, hidden).
        embedding: (hidden,), whose dot product with a query embedding is the document's score; None where that is the
            score of its best sentence.
    """

    spans: list[tuple[int, int]]
    vectors: Tensor
    embedding: Tensor | None


class SentenceScore(NamedTuple):
    """A sentence `text[begin:end]` and what it has to do with a query."""

    begin: int
    end: int
    score: float


class Explanation(NamedTuple):
    """The score of a document for a query, and its sentences, highest score first."""

    score: float
    sentences: list[SentenceScore]


def sentence_places(
    text: str, input_ids: Sequence[int], offsets: Sequence[tuple[int, int]], start_token_id: int
) -> list[tuple[int, int]]:
    """Where each sentence of a row of tokens begins and ends in the text, white space around it left out.

    Args:
        text: the document.
        input_ids: (tokens,), of the document, each sentence beginning with the start token.
        offsets: (tokens,), characters of each token in the text; none for tokens that stand for no text.

    >>> sentence_places("Yes. It is.", [2, 5, 2, 8, 9], [(0, 0), (0, 4), (0, 0), (4, 7), (7, 11)], start_token_id=2)
    [(0, 4), (5, 11)]
    """
    sentences: list[list[tuple[int, int]]] = []
    for token, (begin, end) in zip(input_ids, offsets):
        if token == start_token_id:
            sentences.append([])
        elif begin < end:
            sentences[-1].append((begin, end))
    places = []
    for tokens in sentences:
        begin, end = (tokens[0][0], tokens[-1][1]) if tokens else (0, 0)
        # Tokens of XLM-R's kind hold the space before their word.
        places.append((begin + len(text[begin:end]) - len(text[begin:end].lstrip()), end))
    return places


def contributions(states: Tensor, weights: Tensor, embedding: Tensor) -> Tensor:
    """What each sentence is to the document embedding: vectors (sentences, hidden) that add up to it, at unit length,
    where it is a mean over sentences, and to it less the DBOS vector's part with "mean_with_dbos".

    To weigh a sentence is not yet to put it first: of the sum each has an even share, and beside it, by its weight, how
    far it lies from the mean. Where all weigh the same, this is what it adds to the embedding.

    Args:
        states: (sentences, hidden), contextualised sentence vectors.
        weights: (sentences,), of each in the mean; the DBOS vector's is what they lack to 1.
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
    sentences = [SentenceScore(begin, end, score) for (begin, end), score in zip(document.spans, scores.tolist())]
    return Explanation(float(score), sorted(sentences, key=lambda sentence: sentence.score, reverse=True))
