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
from torch.nn.functional import scaled_dot_product_attention as sdpa
from transformers import BatchEncoding, PreTrainedTokenizerBase
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging

from .segmentation_hmde import sentences_per_passage

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # before torch 2.10
    varlen_attn = None  # type: ignore[assignment]

logger = logging.get_logger(__name__)

# Attention scores that one thread computes at once: one MiB in bfloat16, which the second-level cache of a core holds.
SCORES_AT_ONCE = 2**19

# Attention that computes sequences lying end to end: ours, and that of the flash-attn package through transformers.
PACKED_ATTENTION = ("packed", "flash_attention_2", "flash_attention_3")


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


def sentence_of_tokens(input_ids: Tensor, real: Tensor, start_token_id: int) -> tuple[Tensor, Tensor, Tensor]:
    """The sentences of each row, found without shapes or checks that depend on the tokens, so that it can be exported.

    Args:
        input_ids, real: (documents, tokens), real is False for padding.

    Returns:
        for each token (documents, tokens) the index of its sentence in the document, its index in the sentence, and
        whether it begins one. At padding they mean nothing, but are in range.

    >>> row = torch.tensor([[7, 1, 7, 2, 2, 0]])
    >>> sentence_of_tokens(row, row != 0, start_token_id=7)[:2]
    (tensor([[0, 0, 1, 1, 1, 1]]), tensor([[0, 1, 0, 1, 2, 0]]))
    """
    starts = (input_ids == start_token_id) & real
    columns = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
    begin = torch.where(starts, columns, 0).cummax(dim=1).values
    return (starts.cumsum(dim=1) - 1).clamp(min=0), (columns - begin) * real, starts


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


def packed_attention_arguments(lengths: Tensor) -> dict[str, Any]:
    """The arguments that tell a packed attention where sequences of `lengths` (sequences,) begin and end, by the names
    that transformers' flash attention uses."""
    bounds = nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    longest = int(lengths.max())
    return {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": longest, "max_length_k": longest}


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention within each of the sequences that lie end to end in one row.

    On a GPU in half precision it is core PyTorch's variable-length flash attention, which has no dropout. Elsewhere it
    is one call for each run of sequences of equal length, so they should be sorted: of scaled dot product attention, or
    in bfloat16 on a processor of matrix products (see `attention_by_products`).

    Args:
        module: part of transformers' attention interface, not used.
        attention_mask: (rows, 1, tokens or 1, tokens), in place of `cu_seq_lens_q` for rows that are exported.
        query, key, value: (1, heads, tokens, head width).
        cu_seq_lens_q: (sequences + 1,), int32, the index of each sequence's first token, then the count of all tokens.
        max_length_q: tokens of the longest sequence.
        sliding_window: a token attends to those fewer than this many tokens away. None: to all of its sequence.

    Returns:
        (1, tokens, heads, head width), and no weights.

    Raises:
        ValueError: `cu_seq_lens_q` is missing, as when somebody else than HMDE calls the sentence encoder.
    """
    if attention_mask is not None:
        rows = sdpa(query, key, value, attention_mask, dropout_p=dropout, scale=scaling)
        return rows.transpose(1, 2), None
    if cu_seq_lens_q is None or max_length_q is None:
        raise ValueError(
            "packed attention needs cu_seq_lens_q and max_length_q, which HMDE gives it; to call the sentence encoder "
            'by itself, give it another attention: sentence_encoder.set_attn_implementation("sdpa")'
        )
    if has_variable_length_kernel(value):
        if dropout:
            logger.warning_once("variable-length attention has no dropout: the attention's weights keep theirs")
        query, key, value = (states.squeeze(0).transpose(0, 1) for states in (query, key, value))
        bounds, longest = cu_seq_lens_q, max_length_q
        window = (-1, -1) if sliding_window is None else (sliding_window - 1, sliding_window - 1)
        attended: Any = varlen_attn(
            query, key, value, bounds, bounds, longest, longest, scale=scaling, window_size=window
        )
        return attended.unsqueeze(0), None

    lengths, counts = torch.unique_consecutive(cu_seq_lens_q.diff(), return_counts=True)
    runs = list(zip(counts.tolist(), lengths.tolist()))
    # The backward of `split` is one concatenation; each slice would have a gradient of the size of all tokens.
    sizes = [count * length for count, length in runs]
    attended_runs = []
    attend = attention_by_products if query.device.type == "cpu" and query.dtype == torch.bfloat16 else sdpa
    for run, *parts in zip(runs, *(states.squeeze(0).split(sizes, dim=1) for states in (query, key, value))):
        queries, keys, values = (states.unflatten(1, run).transpose(0, 1) for states in parts)
        mask = _band(run[1], sliding_window, query.device)
        attended = attend(queries, keys, values, attn_mask=mask, dropout_p=dropout, scale=scaling)
        attended_runs.append(attended.transpose(1, 2).flatten(0, 1))
    return torch.cat(attended_runs).unsqueeze(0), None


def attention_by_products(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float, scale: float | None
) -> Tensor:
    """What scaled dot product attention computes, by batched matrix products with a softmax between them.

    A processor that multiplies bfloat16 in hardware does so in its matrix products (oneDNN), but not in PyTorch's
    attention, whose backward pass is slower still. Some heads are taken at once, whose scores fit the caches.

    Args:
        query, key, value: (sequences, heads, tokens, head width).
        attn_mask: (tokens, tokens), True where a token attends to another. None: everywhere.
        dropout_p: share of the weights that is dropped.
        scale: what products are multiplied by; 1 over the root of the head width if not given.

    Returns:
        the shape of `value`.
    """
    tokens, head_width = query.shape[-2:]
    scale = head_width**-0.5 if scale is None else scale
    heads_at_once = max(1, SCORES_AT_ONCE * torch.get_num_threads() // tokens**2)
    attended = []
    for queries, keys, values in zip(*(states.flatten(0, 1).split(heads_at_once) for states in (query, key, value))):
        scores = torch.baddbmm(queries.new_zeros(()), queries, keys.transpose(1, 2), beta=0, alpha=scale)
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        attended.append(nn.functional.dropout(scores.softmax(dim=-1), dropout_p) @ values)
    return torch.cat(attended).view(value.shape)


def has_variable_length_kernel(states: Tensor) -> bool:
    return varlen_attn is not None and states.is_cuda and states.dtype in (torch.bfloat16, torch.float16)


def _band(length: int, width: int | None, device: torch.device) -> Tensor | None:
    """(length, length), True where two tokens are fewer than `width` tokens apart; None where all are."""
    if width is None or length <= width:
        return None
    positions = torch.arange(length, device=device)
    return (positions - positions.unsqueeze(1)).abs() < width


ALL_ATTENTION_FUNCTIONS.register("packed", packed_attention)


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
