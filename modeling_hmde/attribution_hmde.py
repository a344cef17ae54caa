"""Which sentences of a document answer to a query: pure functions on token offsets and vectors, no parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

Scoring = Literal["contribution", "maximum"]


@dataclass
class DocumentSentences:
    """The sentences of one document, and what each is to its embedding.

    Args:
        spans: where each begins and ends, in characters of the text as it was given. A sentence that is too long for
            one place of the document is as many sentences as it takes places; one without text is (0, 0).
        vectors: (sentences, hidden), what a query is compared with, not normalised: the contextualised sentence
            vectors, or, of a model that reads sentences together, those of the sentence encoder for each by itself,
            since there a contextualised vector says as much of the sentences around.
        parts: (sentences, hidden), what each adds to the document embedding of unit length. They add up to it with
            `document_pooling` "mean" or "token_mean", and to it less the DBOS vector's part with "mean_with_dbos". None
            with "dbos", where no part of the embedding belongs to a sentence.
        weights: (sentences,), how much each counts in that mean; of any sum.
        embedding: (hidden,), the document embedding, of unit length.
    """

    spans: list[tuple[int, int]]
    vectors: Tensor
    parts: Tensor | None
    weights: Tensor
    embedding: Tensor


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


def score_sentences(query: Tensor, document: DocumentSentences, scoring: Scoring = "contribution") -> Explanation:
    """A document's score for a query and what each of its sentences has to do with it.

    Args:
        query: (hidden,), the query embedding, of unit length.
        document: of the same model.
        scoring: `contribution` scores the document by cosine, and a sentence by an even share of it and by how far
            the sentence lifts it above what it would be without. Where the embedding is a mean over sentences, these
            scores add up to the cosine; with "mean_with_dbos" the DBOS vector's part is missing from the sum. Where all
            sentences weigh the same, a score is the dot product of the query and what the sentence adds to the document
            embedding; where they do not, that would put long sentences first. `maximum` is late interaction: a sentence
            is scored by the cosine of the query and its vector, the document by its best sentence. It finds more surely
            the sentence that answers.

    Raises:
        ValueError: contributions are asked of a model whose embedding is the DBOS vector, or there is no such scoring.
    """
    if scoring not in get_args(Scoring):
        raise ValueError(f"scoring is {scoring!r}; it must be one of {', '.join(get_args(Scoring))}")
    if scoring == "contribution":
        if document.parts is None:
            raise ValueError(
                "this model's document embedding is its DBOS vector (document_pooling='dbos'), to which sentences "
                "contribute no part of their own; use scoring='maximum'"
            )
        contributions = document.parts @ query
        shares = document.weights / document.weights.sum()
        scores = contributions - shares * contributions.sum() + contributions.mean()
        score = float(document.embedding @ query)
    else:
        scores = torch.nn.functional.normalize(document.vectors, dim=-1) @ query
        score = float(scores.max())
    sentences = [SentenceScore(begin, end, score) for (begin, end), score in zip(document.spans, scores.tolist())]
    return Explanation(score, sorted(sentences, key=lambda sentence: sentence.score, reverse=True))
