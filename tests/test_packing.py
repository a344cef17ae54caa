"""Finding the sentences of rows, bucketing them, and putting their vectors back, against loops in plain Python."""

from __future__ import annotations

from itertools import chain, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_hmde.packing_hmde import bucket_by_length, find_sentences, gather_tokens, scatter_sentences

START, PAD = 7, 0
SENTENCES = st.lists(st.integers(1, 6), max_size=5).map(lambda text: [START, *text])
DOCUMENTS = st.lists(st.lists(SENTENCES, min_size=1, max_size=4), min_size=1, max_size=5)


def batch(documents: list[list[list[int]]], left: int, right: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask of documents, the rows padded in front by `left` and behind by `right` or more."""
    rows = [[*chain(*sentences)] for sentences in documents]
    longest = max(map(len, rows))
    ids = [[PAD] * left + row + [PAD] * (longest - len(row) + right) for row in rows]
    mask = [[0] * left + [1] * len(row) + [0] * (longest - len(row) + right) for row in rows]
    return torch.tensor(ids), torch.tensor(mask)


@given(DOCUMENTS, st.integers(0, 3), st.integers(0, 3))
def test_the_sentences_found_are_those_that_were_laid_end_to_end(
    documents: list[list[list[int]]], left: int, right: int
) -> None:
    ids, mask = batch(documents, left, right)
    found = find_sentences(ids, mask, START)
    expected = [(row, place, tokens) for row, document in enumerate(documents) for place, tokens in enumerate(document)]
    assert list(zip(found.document.tolist(), found.position.tolist(), strict=True)) == [where[:2] for where in expected]
    for row, start, length, (_, _, tokens) in zip(found.document, found.start, found.length, expected, strict=True):
        assert ids[row, start : start + length].tolist() == tokens


@given(DOCUMENTS, st.integers(0, 3), st.integers(6, 40))
def test_gathered_tokens_are_the_sentences_padded_at_their_end(
    documents: list[list[list[int]]], left: int, max_tokens: int
) -> None:
    ids, mask = batch(documents, left, right=2)
    found = find_sentences(ids, mask, START)
    sentences = [*chain(*documents)]
    for bucket in bucket_by_length(found.length, max_tokens):
        tokens, real = gather_tokens(ids, found, bucket, PAD)
        longest = max(len(sentences[place]) for place in bucket)
        for row, attended, place in zip(tokens.tolist(), real.tolist(), bucket, strict=True):
            missing = longest - len(sentences[place])
            assert row == sentences[place] + [PAD] * missing
            assert attended == [1] * len(sentences[place]) + [0] * missing


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
    found = find_sentences(*batch(documents, left=0, right=0), START)
    vectors = torch.arange(1.0, len(found.document) + 1).unsqueeze(1).expand(-1, 2)
    states, mask = scatter_sentences(vectors, found, len(documents))
    numbers = iter(range(1, len(vectors) + 1))
    longest = max(map(len, documents))
    expected = [[next(numbers) if place < len(document) else 0 for place in range(longest)] for document in documents]
    assert states.tolist() == [[[number, number] for number in row] for row in expected]
    assert mask.tolist() == [[number > 0 for number in row] for row in expected]


def test_vectors_keep_their_gradient_where_they_are_scattered() -> None:
    found = find_sentences(torch.tensor([[7, 1, 7], [7, 1, 1]]), torch.ones(2, 3), START)
    vectors = torch.ones(3, 1, requires_grad=True)
    states, _ = scatter_sentences(vectors, found, 2)
    (states.squeeze(-1) * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert vectors.grad is not None
    assert vectors.grad.squeeze(1).tolist() == [1, 2, 3]


def test_a_row_that_does_not_begin_with_the_start_token_is_named() -> None:
    with pytest.raises(ValueError, match="row 1 of the batch begins with token 5, not with the start token 7"):
        find_sentences(torch.tensor([[7, 1, 1], [5, 7, 1]]), torch.ones(2, 3), START)


def test_a_row_of_padding_is_named() -> None:
    with pytest.raises(ValueError, match="row 1 of the batch has no real token"):
        find_sentences(torch.tensor([[7, 1], [7, 1]]), torch.tensor([[1, 1], [0, 0]]), START)


def test_a_start_token_in_the_padding_begins_no_sentence() -> None:
    assert find_sentences(torch.tensor([[7, 1, 7]]), torch.tensor([[1, 1, 0]]), START).length.tolist() == [2]
