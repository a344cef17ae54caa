"""From rows of documents to batches of sentences and back: pure functions on tensors, no parameters.

The sentence encoder reads passages: single sentences, or consecutive ones together. The passages of all documents of a
batch are sorted by length and encoded in buckets of similar length. Then the vectors of their sentences are put back
into the order of the documents.

A bucket is packed: its passages lie end to end in one row without padding, and the attention, registered with
transformers under the name `packed`, keeps them apart. An encoder that cannot be packed gets a padded batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import BatchEncoding, PreTrainedTokenizerBase

from .segmentation_hmde import sentences_per_passage


class Sentences(NamedTuple):
    """The sentences of a batch, in reading order. Each field: (sentences,), int64."""

    document: Tensor  # row of the batch
    position: Tensor  # index among the document's sentences
    start: Tensor  # column of the first token
    length: Tensor  # tokens that are read; start and end token count if they are


def find_sentences(input_ids: Tensor, attention_mask: Tensor, start_token_id: int) -> Sentences:
    """The sentences of each document, recognised by their start tokens.

    Args:
        input_ids: (documents, tokens).
        attention_mask: (documents, tokens), nonzero where a token is real. The real tokens of a row are contiguous.
        start_token_id: the id that begins every sentence and occurs nowhere else.

    Raises:
        ValueError: a row has no real token, or its first real token is not the start token.

    >>> find_sentences(torch.tensor([[7, 1, 7, 0], [7, 1, 1, 1]]), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]), 7).length
    tensor([2, 1, 4])
    """
    real = attention_mask.bool()
    starts = (input_ids == start_token_id) & real
    first_real = real.int().argmax(dim=1, keepdim=True)  # 0 for a row of padding, where there is no start either
    headless = ~starts.gather(1, first_real).squeeze(1)
    if headless.any():
        row = int(headless.nonzero()[0])
        if not real[row].any():
            raise ValueError(f"row {row} of the batch has no real token; an empty document is a start and an end token")
        raise ValueError(
            f"row {row} of the batch begins with token {int(input_ids[row, first_real[row]])}, not with the start "
            f"token {start_token_id}; tokenize documents with HMDETokenizer"
        )
    document, start = starts.nonzero(as_tuple=True)
    position = starts.cumsum(dim=1)[document, start] - 1
    # A sentence ends at the next start token of its row, the last one after the row's last real token.
    end = first_real.squeeze(1)[document] + real.sum(dim=1)[document]
    same_document = document[1:] == document[:-1]
    end[:-1] = torch.where(same_document, start[1:], end[:-1])
    return Sentences(document, position, start, end - start)


class Passages(NamedTuple):
    """Consecutive sentences of a document, read together. Each field: (passages,), int64."""

    first_sentence: Tensor  # index into the sentences of the batch
    num_sentences: Tensor
    length: Tensor  # tokens


def join_sentences(sentences: Sentences, passage_length: int) -> tuple[Sentences, Passages]:
    """The sentences of a batch as they are read in passages, and the passages (see `sentences_per_passage`).

    Start and end tokens within a passage are left out, because the sentence encoder was not trained with them amid a
    text. A sentence of start and end token alone keeps one of them.

    Args:
        sentences: all sentences of the batch.
        passage_length: most tokens of a passage of several sentences; 0 makes each sentence a passage.

    >>> row = torch.tensor([[7, 1, 8, 7, 2, 8, 7, 3, 8]])
    >>> sentences, passages = join_sentences(find_sentences(row, torch.ones_like(row), start_token_id=7), 4)
    >>> sentences.length, passages.length
    (tensor([2, 2, 3]), tensor([4, 3]))
    """
    lengths = iter(sentences.length.tolist())
    sentences_of_documents = sentences.document.unique_consecutive(return_counts=True)[1].tolist()
    counts = [sentences_per_passage(islice(lengths, count), passage_length) for count in sentences_of_documents]
    num_sentences = torch.tensor([*chain(*counts)], device=sentences.length.device)
    end = num_sentences.cumsum(0)
    first = end - num_sentences
    is_first, is_last = (torch.zeros_like(sentences.start, dtype=torch.bool) for _ in range(2))
    is_first[first], is_last[end - 1] = True, True
    without_start = (~is_first & (sentences.length > 1)).long()
    length = sentences.length - without_start
    length = length - (~is_last & (length > 1)).long()
    tokens_before = nn.functional.pad(length.cumsum(0), (1, 0))
    read = sentences._replace(start=sentences.start + without_start, length=length)
    return read, Passages(first, num_sentences, tokens_before[end] - tokens_before[first])


def ranges(first: Tensor, count: Tensor) -> Tensor:
    """Ranges of `count` integers from `first` on, end to end.

    >>> ranges(torch.tensor([5, 0]), torch.tensor([2, 3]))
    tensor([5, 6, 0, 1, 2])
    """
    before = count.cumsum(0) - count
    return (first - before).repeat_interleave(count) + torch.arange(int(count.sum()), device=first.device)


def bucket_by_length(lengths: Tensor, max_tokens: int) -> list[Tensor]:
    """Groups of sequences of similar length, each of at most `max_tokens` tokens with padding.

    Args:
        lengths: (sequences,), tokens of each sequence.
        max_tokens: a sequence that is longer than this gets a bucket of its own.

    Returns:
        indices into `lengths`, (sequences of the bucket,) each. The longest sequences come first, so that a run that
        does not fit into memory fails at once.

    >>> bucket_by_length(torch.tensor([2, 9, 3, 8]), max_tokens=18)
    [tensor([1, 3]), tensor([2, 0])]
    """
    order = lengths.argsort(descending=True, stable=True)
    sizes: list[int] = []
    longest = 0
    for length in lengths[order].tolist():
        if not sizes or (sizes[-1] + 1) * longest > max_tokens:
            sizes.append(0)
            longest = length
        sizes[-1] += 1
    return list(order.split(sizes))


def padded_batches(
    tokenizer: PreTrainedTokenizerBase, rows: Mapping[str, Sequence[Sequence[int]]], max_tokens: int
) -> Iterator[tuple[Tensor, BatchEncoding]]:
    """Batches of texts of similar length, padded and ready for a model.

    Args:
        tokenizer: it pads the rows.
        rows: `input_ids` and any other input that has one number for each token, without padding.
        max_tokens: most tokens of a batch with its padding. A longer text gets a batch of its own.

    Yields:
        the indices of the texts in `rows`, (texts of the batch,), and their inputs, (texts of the batch, tokens) each,
        on the CPU. The longest texts come first.
    """
    for indices in bucket_by_length(torch.tensor([len(row) for row in rows["input_ids"]]), max_tokens):
        batch: dict[str, Any] = {name: [values[index] for index in indices] for name, values in rows.items()}
        yield indices, tokenizer.pad(batch, return_tensors="pt")


def tokens_of(input_ids: Tensor, sentences: Sentences) -> Tensor:
    """The tokens (tokens,) of some sentences end to end. input_ids: (documents, tokens)."""
    return input_ids[sentences.document.repeat_interleave(sentences.length), ranges(sentences.start, sentences.length)]


def pad_tokens(input_ids: Tensor, sentences: Sentences, lengths: Tensor, pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Some passages as a batch of the sentence encoder.

    Args:
        input_ids: (documents, tokens).
        sentences: those of the passages, in their order.
        lengths: (passages,), tokens of each passage.
        pad_token_id: fills up the shorter passages, at their end.

    Returns:
        ids and attention mask (int64), both (passages, longest passage).
    """
    real = torch.arange(int(lengths.max()), device=input_ids.device) < lengths.unsqueeze(1)
    ids = torch.full_like(real, pad_token_id, dtype=torch.long)
    return ids.masked_scatter(real, tokens_of(input_ids, sentences)), real.long()


class PackedTokens(NamedTuple):
    """Passages end to end in one row, in the form that transformers' models take."""

    input_ids: Tensor  # (1, tokens), int64
    position_ids: Tensor  # (1, tokens), int64, from 0 in every passage
    lengths: Tensor  # (passages,), int64


def pack_tokens(input_ids: Tensor, sentences: Sentences, lengths: Tensor) -> PackedTokens:
    """Some passages end to end.

    Args:
        input_ids: (documents, tokens).
        sentences: those of the passages, in their order.
        lengths: (passages,), tokens of each passage.
    """
    positions = ranges(torch.zeros_like(lengths), lengths)
    return PackedTokens(tokens_of(input_ids, sentences).unsqueeze(0), positions.unsqueeze(0), lengths)


def scatter_sentences(vectors: Tensor, sentences: Sentences, num_documents: int) -> tuple[Tensor, Tensor]:
    """Sentence vectors, a row for each document.

    Args:
        vectors: (sentences, hidden).
        sentences: the document and position of each vector.
        num_documents: rows of the batch.

    Returns:
        (documents, most sentences, hidden), zero where there is no sentence, and the tokens of each sentence
        (documents, most sentences), int64, 0 where there is none.

    >>> sentences = find_sentences(torch.tensor([[7, 7], [7, 1]]), torch.ones(2, 2), start_token_id=7)
    >>> scatter_sentences(torch.tensor([[1.0], [2.0], [3.0]]), sentences, num_documents=2)[0].squeeze(-1)
    tensor([[1., 2.],
            [3., 0.]])
    """
    shape = (num_documents, int(sentences.position.max()) + 1)
    lengths = sentences.length.new_zeros(shape)
    lengths[sentences.document, sentences.position] = sentences.length
    documents = vectors.new_zeros(*shape, vectors.shape[-1])
    return documents.index_put((sentences.document, sentences.position), vectors), lengths
