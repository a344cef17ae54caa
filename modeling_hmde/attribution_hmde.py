"""Which sentences of a document match a query: pure functions on token offsets and vectors, no parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from torch import Tensor

Score = TypeVar("Score", float, np.ndarray, Tensor)

# The shares of the best and of the first sentence in the score of a document by both scales. Chosen on the development
# sets (docs/journal): a larger share of the best sentence finds more details of long documents, a smaller one more
# titles; the first sentence often says what a document is about, as a title does.
BEST_SENTENCE, FIRST_SENTENCE = 0.6, 0.1


class DocumentSentences(NamedTuple):
    """The sentences of one document, each with a vector whose cosine with a query embedding is its score.

    Args:
        spans: begin and end of each sentence, in characters of the text as it was given. A sentence longer than
            `max_sentence_length` is split, and each part counts as a sentence. A sentence without text is (0, 0).
        vectors: (sentences, hidden), L2-normalised.
    """

    spans: list[tuple[int, int]]
    vectors: Tensor


class SentenceScore(NamedTuple):
    """A sentence, `text[begin:end]`, and its score for a query."""

    begin: int
    end: int
    score: float


class Explanation(NamedTuple):
    """The score of a document for a query, which is that of its best sentence, and its sentences, best first."""

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


def score_sentences(query: Tensor, document: DocumentSentences) -> Explanation:
    """The cosines of a query with a document's sentences.

    Args:
        query: (hidden,), the query embedding, of unit length.
        document: of the same model.
    """
    scores = document.vectors @ query
    sentences = [SentenceScore(begin, end, own) for (begin, end), own in zip(document.spans, scores.tolist())]
    best_first = sorted(sentences, key=lambda sentence: sentence.score, reverse=True)
    return Explanation(best_first[0].score, best_first)
