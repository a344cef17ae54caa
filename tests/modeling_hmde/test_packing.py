"""Finding the sentences of rows, bucketing them, and putting their vectors back, against loops in plain Python."""

from __future__ import annotations

from itertools import chain, pairwise
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_hmde.packing_hmde import (
    Sentences,
    bucket_by_length,
    find_sentences,
    join_sentences,
    pad_tokens,
    ranges,
    scatter_sentences,
    sentences_by_start_token,
    tokens_of,
)

START, END, PAD = 7, 8, 0
SENTENCES = st.lists(st.integers(1, 6), max_size=5).map(lambda text: [START, *text])
DOCUMENTS = st.lists(st.lists(SENTENCES, min_size=1, max_size=4), min_size=1, max_size=5)


def batch(documents: list[list[list[int]]], left: int, right: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask of documents, the rows padded in front by `left` and behind by `right` or more."""
    rows = [[*chain(*sentences)] for sentences in documents]
    longest = max(map(len, rows))
    ids = [[PAD] * left + row + [PAD] * (longest - len(row) + right) for row in rows]
    mask = [[0] * left + [1] * len(row) + [0] * (longest - len(row) + right) for row in rows]
    return torch.tensor(ids), torch.tensor(mask)


def sentences_of(ids: torch.Tensor, mask: torch.Tensor) -> Sentences:
    """Those of rows in which a start token begins each sentence."""
    return find_sentences(sentences_by_start_token(ids, mask, START), mask)


@given(DOCUMENTS, st.integers(0, 3), st.integers(0, 3))
def test_the_sentences_found_are_those_that_were_laid_end_to_end(
    documents: list[list[list[int]]], left: int, right: int
) -> None:
    ids, mask = batch(documents, left, right)
    found = sentences_of(ids, mask)
    expected = [(row, place, tokens) for row, document in enumerate(documents) for place, tokens in enumerate(document)]
    assert list(zip(found.document.tolist(), found.position.tolist(), strict=True)) == [where[:2] for where in expected]
    for row, start, length, (_, _, tokens) in zip(found.document, found.start, found.length, expected, strict=True):
        assert ids[row, start : start + length].tolist() == tokens


@given(DOCUMENTS, st.integers(0, 3), st.integers(0, 3))
def test_sentence_ids_say_the_same_as_start_tokens(documents: list[list[list[int]]], left: int, right: int) -> None:
    ids, mask = batch(documents, left, right)
    numbers = [[[number] * len(tokens) for number, tokens in enumerate(sentences)] for sentences in documents]
    sentence_ids, _ = batch(numbers, left, right)
    for expected, found in zip(sentences_of(ids, mask), find_sentences(sentence_ids, mask), strict=True):
        assert torch.equal(expected, found)


def passages_of(documents: list[list[list[int]]], passage_length: int) -> list[list[list[int]]]:
    """The sentences of each passage as they are read: a sentence joins those before it where all fit, and between two
    sentences stands no end and no start token. Every sentence here has a start token, text and an end token."""
    passages: list[list[list[int]]] = []
    for document in documents:
        passages.append([document[0]])
        for sentence in document[1:]:
            joined = [*passages[-1][:-1], passages[-1][-1][:-1], sentence[1:]]
            if len([*chain(*joined)]) <= passage_length:
                passages[-1] = joined
            else:
                passages.append([sentence])
    return passages


WHOLE_DOCUMENTS = st.lists(
    st.lists(
        st.lists(st.integers(1, 6), min_size=1, max_size=5).map(lambda text: [START, *text, END]),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=5,
)
PASSAGE_LENGTHS = st.sampled_from([0, 7, 9, 14, 100])


@given(WHOLE_DOCUMENTS, st.integers(0, 3), PASSAGE_LENGTHS)
def test_a_passage_has_as_many_sentences_of_a_document_as_it_has_room_for(
    documents: list[list[list[int]]], left: int, passage_length: int
) -> None:
    ids, mask = batch(documents, left, right=1)
    found = sentences_of(ids, mask)
    read, joined = join_sentences(found, passage_length)
    expected = passages_of(documents, passage_length)
    assert joined.length.tolist() == [sum(map(len, sentences)) for sentences in expected]
    assert joined.num_sentences.tolist() == [len(sentences) for sentences in expected]
    ends = joined.first_sentence + joined.num_sentences
    assert ends.tolist() == [*joined.first_sentence.tolist()[1:], len(found.start)]
    assert torch.equal(read.document, found.document)
    assert torch.equal(read.position, found.position)
    for row, start, length, tokens in zip(read.document, read.start, read.length, chain(*expected), strict=True):
        assert ids[row, start : start + length].tolist() == tokens


@given(DOCUMENTS, PASSAGE_LENGTHS)
def test_a_sentence_without_text_keeps_a_token(documents: list[list[list[int]]], passage_length: int) -> None:
    """Rows that no HMDETokenizer makes: their sentences have no end token, and some nothing but a start token."""
    read, joined = join_sentences(sentences_of(*batch(documents, left=0, right=1)), passage_length)
    assert read.length.min() >= 1
    assert joined.length[joined.num_sentences > 1].le(passage_length).all()


def a_few(documents: list[list[list[int]]], left: int, passage_length: int, random: Random) -> Any:
    """The ids of documents, and of some passages: the tokens, the sentences and the lengths."""
    ids, mask = batch(documents, left, right=2)
    sentences, joined = join_sentences(sentences_of(ids, mask), passage_length)
    bucket = torch.tensor(random.sample(range(len(joined.length)), k=random.randint(1, len(joined.length))))
    places = ranges(joined.first_sentence[bucket], joined.num_sentences[bucket])
    passages = [[*chain(*parts)] for parts in passages_of(documents, passage_length)]
    return ids, [passages[place] for place in bucket], Sentences(*(f[places] for f in sentences)), joined.length[bucket]


@given(WHOLE_DOCUMENTS, st.integers(0, 3), PASSAGE_LENGTHS, st.randoms(use_true_random=False))
def test_padded_tokens_are_the_passages_padded_at_their_end(
    documents: list[list[list[int]]], left: int, passage_length: int, random: Random
) -> None:
    ids, passages, sentences, lengths = a_few(documents, left, passage_length, random)
    tokens, real = pad_tokens(ids, sentences, lengths, PAD)
    longest = max(map(len, passages))
    assert tokens.tolist() == [passage + [PAD] * (longest - len(passage)) for passage in passages]
    assert real.tolist() == [[1] * len(passage) + [0] * (longest - len(passage)) for passage in passages]


@given(WHOLE_DOCUMENTS, st.integers(0, 3), PASSAGE_LENGTHS, st.randoms(use_true_random=False))
def test_the_tokens_of_passages_lie_end_to_end_and_their_positions_begin_anew(
    documents: list[list[list[int]]], left: int, passage_length: int, random: Random
) -> None:
    ids, passages, sentences, lengths = a_few(documents, left, passage_length, random)
    assert tokens_of(ids, sentences).tolist() == [*chain(*passages)]
    positions = ranges(torch.zeros_like(lengths), lengths)
    assert positions.tolist() == [*chain(*(range(len(passage)) for passage in passages))]
    assert lengths.tolist() == [*map(len, passages)]


@given(st.lists(st.integers(1, 30), min_size=1), st.integers(1, 60))
def test_buckets_hold_every_sentence_once_longest_first_within_the_token_budget(
    lengths: list[int], max_tokens: int
) -> None:
    buckets = [bucket.tolist() for bucket in bucket_by_length(torch.tensor(lengths), max_tokens)]
    order = [*chain(*buckets)]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[place] for place in order] == sorted(lengths, reverse=True)
    for bucket in buckets:
        assert len(bucket) * lengths[bucket[0]] <= max_tokens or len(bucket) == 1
    for bucket, following in pairwise(buckets):
        assert (len(bucket) + 1) * lengths[bucket[0]] > max_tokens, f"{following[0]} had room"


@given(DOCUMENTS)
def test_scattered_vectors_stand_at_their_sentences_and_zeros_elsewhere(documents: list[list[list[int]]]) -> None:
    found = sentences_of(*batch(documents, left=0, right=0))
    vectors = torch.arange(1.0, len(found.document) + 1).unsqueeze(1).expand(-1, 2)
    states, lengths = scatter_sentences(vectors, found, len(documents))
    numbers = iter(range(1, len(vectors) + 1))
    longest = max(map(len, documents))
    expected = [[next(numbers) if place < len(document) else 0 for place in range(longest)] for document in documents]
    assert states.tolist() == [[[number, number] for number in row] for row in expected]
    assert lengths.tolist() == [
        [len(document[place]) if place < len(document) else 0 for place in range(longest)] for document in documents
    ]


def test_vectors_keep_their_gradient_where_they_are_scattered() -> None:
    found = sentences_of(torch.tensor([[7, 1, 7], [7, 1, 1]]), torch.ones(2, 3))
    vectors = torch.ones(3, 1, requires_grad=True)
    states, _ = scatter_sentences(vectors, found, 2)
    (states.squeeze(-1) * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert vectors.grad is not None
    assert vectors.grad.squeeze(1).tolist() == [1, 2, 3]


def test_rows_in_which_no_token_marks_a_start_need_sentence_ids() -> None:
    with pytest.raises(ValueError, match=r"no token marks the start of a sentence .* need sentence_ids"):
        sentences_by_start_token(torch.tensor([[7, 1, 1]]), torch.ones(1, 3), start_token_id=None)


def test_padding_between_real_tokens_is_named() -> None:
    with pytest.raises(ValueError, match="row 1 of the batch has padding between real tokens"):
        sentences_of(torch.tensor([[7, 1, 1], [7, 1, 1]]), torch.tensor([[1, 1, 0], [1, 0, 1]]))


def test_a_start_token_in_the_padding_begins_no_sentence() -> None:
    assert sentences_of(torch.tensor([[7, 1, 7]]), torch.tensor([[1, 1, 0]])).length.tolist() == [2]
