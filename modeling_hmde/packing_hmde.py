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
    length: Tensor  # tokens that are read; special tokens count if they are


def find_sentences(sentence_ids: Tensor, attention_mask: Tensor) -> Sentences:
    """The sentences of each document: the runs of equal ids among its real tokens.

    Args:
        sentence_ids: (documents, tokens), of each token its sentence.
        attention_mask: (documents, tokens), nonzero where a token is real. The real tokens of a row are contiguous.

    Raises:
        ValueError: a row has no real token, or padding between real tokens.

    >>> find_sentences(torch.tensor([[0, 0, 1, -1], [0, 0, 0, 0]]), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])).length
    tensor([2, 1, 4])
    """
    real = attention_mask.bool()
    runs = nn.functional.pad(real.int(), (1, 0)).diff(dim=1).clamp(min=0).sum(dim=1)
    if (runs != 1).any():
        row = int((runs != 1).nonzero()[0])
        fault = "padding between real tokens" if runs[row] else "no real token"
        raise ValueError(f"row {row} of the batch has {fault}; make the batch with HMDETokenizer, which leaves neither")
    continues = (sentence_ids[:, 1:] == sentence_ids[:, :-1]) & real[:, :-1]
    starts = real & ~nn.functional.pad(continues, (1, 0))
    document, start = starts.nonzero(as_tuple=True)
    position = starts.cumsum(dim=1)[document, start] - 1
    # A sentence ends where the next one of its row begins, the last one after the row's last real token.
    end = real.int().argmax(dim=1)[document] + real.sum(dim=1)[document]
    same_document = document[1:] == document[:-1]
    end[:-1] = torch.where(same_document, start[1:], end[:-1])
    return Sentences(document, position, start, end - start)


def sentences_by_start_token(input_ids: Tensor, attention_mask: Tensor, start_token_id: int | None) -> Tensor:
    """The `sentence_ids` (documents, tokens) of rows that come without: a start token begins each sentence.

    Args:
        input_ids, attention_mask: (documents, tokens).
        start_token_id: the id that begins every sentence and occurs nowhere else. None: there is none.

    Raises:
        ValueError: there is no such id, or the first real token of a row is another.

    >>> sentences_by_start_token(torch.tensor([[7, 1, 7, 0]]), torch.tensor([[1, 1, 1, 0]]), start_token_id=7)
    tensor([[0, 0, 1, 1]])
    """
    real = attention_mask.bool()
    if start_token_id is None:
        raise ValueError(
            "no token marks the start of a sentence for this encoder, so rows need sentence_ids beside their "
            "input_ids; HMDETokenizer gives both"
        )
    first = input_ids.gather(1, real.int().argmax(dim=1, keepdim=True)).squeeze(1)
    headless = real.any(dim=1) & (first != start_token_id)
    if headless.any():
        row = int(headless.nonzero()[0])
        raise ValueError(
            f"row {row} of the batch begins with token {int(first[row])}, not with the start token {start_token_id}, "
            "and has no sentence_ids; tokenize documents with HMDETokenizer"
        )
    return ((input_ids == start_token_id) & real).cumsum(dim=1) - 1


class Passages(NamedTuple):
    """Consecutive sentences of a document, read together. Each field: (passages,), int64."""

    first_sentence: Tensor  # index into the sentences of the batch
    num_sentences: Tensor
    length: Tensor  # tokens


def join_sentences(
    sentences: Sentences, passage_length: int, left_out: tuple[int, int] = (1, 1)
) -> tuple[Sentences, Passages]:
    """The sentences of a batch as they are read in passages, and the passages (see `sentences_per_passage`).

    Special tokens within a passage are left out, because the sentence encoder was not trained with them amid a text. A
    sentence of special tokens alone keeps one of them.

    Args:
        sentences: all sentences of the batch.
        passage_length: most tokens of a passage of several sentences; 0 makes each sentence a passage.
        left_out: special tokens before and after a sentence that are left out within a passage.

    >>> row = torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2, 2]])
    >>> sentences, passages = join_sentences(find_sentences(row, torch.ones_like(row)), passage_length=4)
    >>> sentences.length, passages.length
    (tensor([2, 2, 3]), tensor([4, 3]))
    """
    before, after = left_out
    lengths = iter(sentences.length.tolist())
    sentences_of_documents = sentences.document.unique_consecutive(return_counts=True)[1].tolist()
    counts = [
        sentences_per_passage(islice(lengths, count), passage_length, before + after)
        for count in sentences_of_documents
    ]
    num_sentences = torch.tensor([*chain(*counts)], device=sentences.length.device)
    end = num_sentences.cumsum(0)
    first = end - num_sentences
    is_first, is_last = (torch.zeros_like(sentences.start, dtype=torch.bool) for _ in range(2))
    is_first[first], is_last[end - 1] = True, True
    without_start = (sentences.length - 1).clamp(max=before).masked_fill(is_first, 0)
    length = sentences.length - without_start
    length = length - (length - 1).clamp(max=after).masked_fill(is_last, 0)
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
        padded = tokenizer.pad(batch, return_tensors="np")  # a quarter of the time that "pt" takes
        yield indices, BatchEncoding({name: torch.from_numpy(values) for name, values in padded.items()})


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


def scatter_sentences(vectors: Tensor, sentences: Sentences, num_documents: int) -> tuple[Tensor, Tensor]:
    """Sentence vectors, a row for each document.

    Args:
        vectors: (sentences, hidden).
        sentences: the document and position of each vector.
        num_documents: rows of the batch.

    Returns:
        (documents, most sentences, hidden), zero where there is no sentence, and the tokens of each sentence
        (documents, most sentences), int64, 0 where there is none.

    >>> sentences = find_sentences(torch.tensor([[0, 1], [0, 0]]), torch.ones(2, 2))
    >>> scatter_sentences(torch.tensor([[1.0], [2.0], [3.0]]), sentences, num_documents=2)[0].squeeze(-1)
    tensor([[1., 2.],
            [3., 0.]])
    """
    shape = (num_documents, int(sentences.position.max()) + 1)
    lengths = sentences.length.new_zeros(shape)
    lengths[sentences.document, sentences.position] = sentences.length
    documents = vectors.new_zeros(*shape, vectors.shape[-1])
    return documents.index_put((sentences.document, sentences.position), vectors), lengths
