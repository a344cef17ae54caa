"""Between rows of documents and batches of sentences: pure functions on tensors, no parameters.

Only real tokens reach the sentence encoder. The sentences of all documents of a batch are sorted by length and encoded
in buckets of like length; their vectors are put back at their places in the documents.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Sentences(NamedTuple):
    """Where the sentences of a batch stand, in reading order. Each field: (sentences,), int64."""

    document: Tensor  # row of the batch
    position: Tensor  # place among the document's sentences, from 0
    start: Tensor  # column of the start token
    length: Tensor  # tokens, start and end token included


def find_sentences(input_ids: Tensor, attention_mask: Tensor, start_token_id: int) -> Sentences:
    """The sentences of each document, found by their start tokens.

    Args:
        input_ids: (documents, tokens).
        attention_mask: (documents, tokens), nonzero where a token is real. The real tokens of a row are contiguous.
        start_token_id: the id that begins every sentence and stands nowhere else.

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
    # A sentence reaches to the next start token of its row, the last one to the row's last real token.
    end = first_real.squeeze(1)[document] + real.sum(dim=1)[document]
    same_document = document[1:] == document[:-1]
    end[:-1] = torch.where(same_document, start[1:], end[:-1])
    return Sentences(document, position, start, end - start)


def bucket_by_length(lengths: Tensor, max_tokens: int) -> list[Tensor]:
    """Groups of sentences of like length, each of at most `max_tokens` tokens with its padding.

    Args:
        lengths: (sentences,), tokens of each sentence.
        max_tokens: a sentence that is longer by itself gets a bucket of its own.

    Returns:
        indices into `lengths`, (sentences of the bucket,) each, longest sentences first, so that a run that does not
        fit the memory fails at its first bucket.

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


def gather_tokens(input_ids: Tensor, sentences: Sentences, bucket: Tensor, pad_token_id: int) -> tuple[Tensor, Tensor]:
    """The tokens of some sentences as a batch of the sentence encoder.

    Args:
        input_ids: (documents, tokens).
        sentences: all sentences of the batch.
        bucket: (sentences of the bucket,), indices into `sentences`.
        pad_token_id: what fills up the shorter ones, at their end.

    Returns:
        ids and attention mask (int64), both (sentences of the bucket, longest sentence).
    """
    length = sentences.length[bucket].unsqueeze(1)
    offsets = torch.arange(int(length.max()), device=input_ids.device)
    real = offsets < length
    columns = torch.where(real, sentences.start[bucket].unsqueeze(1) + offsets, 0)
    ids = input_ids[sentences.document[bucket].unsqueeze(1), columns]
    return ids.masked_fill(~real, pad_token_id), real.long()


def scatter_sentences(vectors: Tensor, sentences: Sentences, num_documents: int) -> tuple[Tensor, Tensor]:
    """Sentence vectors at their places in the documents.

    Args:
        vectors: (sentences, hidden).
        sentences: their places.
        num_documents: rows of the batch.

    Returns:
        (documents, most sentences, hidden), zero where there is no sentence, and the mask of real sentences
        (documents, most sentences), bool.

    >>> places = find_sentences(torch.tensor([[7, 7], [7, 1]]), torch.ones(2, 2), start_token_id=7)
    >>> scatter_sentences(torch.tensor([[1.0], [2.0], [3.0]]), places, num_documents=2)[0].squeeze(-1)
    tensor([[1., 2.],
            [3., 0.]])
    """
    shape = (num_documents, int(sentences.position.max()) + 1)
    mask = torch.zeros(shape, dtype=torch.bool, device=vectors.device)
    mask[sentences.document, sentences.position] = True
    documents = vectors.new_zeros(*shape, vectors.shape[-1])
    return documents.index_put((sentences.document, sentences.position), vectors), mask
