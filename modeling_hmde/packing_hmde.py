"""Between rows of documents and batches of sentences: pure functions on tensors, no parameters.

Only real tokens reach the sentence encoder. It reads passages: single sentences, or consecutive ones together. The
passages of all documents of a batch are sorted by length and encoded in buckets of like length; the vectors of their
sentences are put back at their places in the documents.

A bucket is packed: its passages lie end to end in one row without padding, and the attention, registered with
transformers under the name `packed`, keeps them apart. An encoder that cannot be packed gets a padded batch.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging

from .segmentation_hmde import sentences_per_passage

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # before torch 2.10
    varlen_attn = None  # type: ignore[assignment]

logger = logging.get_logger(__name__)

# Attention that computes sequences laid end to end: ours, and that of the flash-attn package through transformers.
PACKED_ATTENTION = ("packed", "flash_attention_2", "flash_attention_3")

# Sentence encoders that take position_ids and inputs_embeds and hand what the attention needs down to it. Others may
# take the same arguments and ignore them, so each is named.
PACKABLE_ENCODERS = ("bert", "camembert", "modernbert", "roberta", "xlm-roberta")


class Sentences(NamedTuple):
    """Where the sentences of a batch stand, in reading order. Each field: (sentences,), int64."""

    document: Tensor  # row of the batch
    position: Tensor  # place among the document's sentences, from 0
    start: Tensor  # column of the first token
    length: Tensor  # tokens, start and end token included as far as they are read


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


class Passages(NamedTuple):
    """Consecutive sentences of a document, read together. Each field: (passages,), int64."""

    first_sentence: Tensor  # index into the sentences of the batch
    num_sentences: Tensor
    length: Tensor  # tokens


def join_sentences(sentences: Sentences, passage_length: int) -> tuple[Sentences, Passages]:
    """The passages of a batch (see `sentences_per_passage`), and its sentences as they are read there.

    Within a passage no sentence has a start or end token: a sentence encoder has not seen these amid a text, and makes
    less of it where they stand. Only a sentence that has nothing else keeps one of them.

    Args:
        sentences: all sentences of the batch.
        passage_length: tokens of a passage of several sentences; 0 leaves each sentence by itself.

    >>> row = torch.tensor([[7, 1, 8, 7, 2, 8, 7, 3, 8]])
    >>> found = find_sentences(row, torch.ones_like(row), start_token_id=7)
    >>> sentences, passages = join_sentences(found, passage_length=4)
    >>> sentences.length, passages.length
    (tensor([2, 2, 3]), tensor([4, 3]))
    """
    lengths = iter(sentences.length.tolist())
    sentences_of_documents = sentences.document.unique_consecutive(return_counts=True)[1].tolist()
    numbers = [sentences_per_passage(islice(lengths, number), passage_length) for number in sentences_of_documents]
    number = torch.tensor([*chain(*numbers)], device=sentences.length.device)
    end = number.cumsum(0)
    first = end - number
    is_first, is_last = (torch.zeros_like(sentences.start, dtype=torch.bool) for _ in range(2))
    is_first[first], is_last[end - 1] = True, True
    without_start = (~is_first & (sentences.length > 1)).long()
    length = sentences.length - without_start
    length = length - (~is_last & (length > 1)).long()
    tokens_before = nn.functional.pad(length.cumsum(0), (1, 0))
    read = sentences._replace(start=sentences.start + without_start, length=length)
    return read, Passages(first, number, tokens_before[end] - tokens_before[first])


def ranges(first: Tensor, number: Tensor) -> Tensor:
    """
    >>> ranges(torch.tensor([5, 0]), torch.tensor([2, 3]))
    tensor([5, 6, 0, 1, 2])
    """
    before = number.cumsum(0) - number
    return (first - before).repeat_interleave(number) + torch.arange(int(number.sum()), device=first.device)


def bucket_by_length(lengths: Tensor, max_tokens: int) -> list[Tensor]:
    """Groups of sequences of like length, each of at most `max_tokens` tokens with its padding.

    Args:
        lengths: (sequences,), tokens of each sequence.
        max_tokens: a sequence that is longer by itself gets a bucket of its own.

    Returns:
        indices into `lengths`, (sequences of the bucket,) each, longest sequences first, so that a run that does not
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


def tokens_of(input_ids: Tensor, sentences: Sentences) -> Tensor:
    """The tokens (tokens,) of some sentences end to end. input_ids: (documents, tokens)."""
    return input_ids[sentences.document.repeat_interleave(sentences.length), ranges(sentences.start, sentences.length)]


def pad_tokens(input_ids: Tensor, sentences: Sentences, lengths: Tensor, pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Some passages as a batch of the sentence encoder.

    Args:
        input_ids: (documents, tokens).
        sentences: those of the passages, in their order.
        lengths: (passages,), tokens of each passage.
        pad_token_id: what fills up the shorter ones, at their end.

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
    """What a packed attention has to know of the sequences (lengths: (sequences,)), by the names of transformers'
    flash attention."""
    bounds = nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    longest = int(lengths.max())
    return {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": longest, "max_length_k": longest}


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention within each of the sequences that lie end to end in one row.

    On a GPU in half precision, core PyTorch's variable-length flash attention, which has no dropout; else one call of
    scaled dot product attention for each run of sequences of one length, so sort them by length.

    Args:
        module, attention_mask: of transformers' attention interface, not needed.
        query, key, value: (1, heads, tokens, head width).
        cu_seq_lens_q: (sequences + 1,), int32, where each sequence begins, and the number of tokens.
        max_length_q: tokens of the longest sequence.
        sliding_window: a token attends to those fewer than so many tokens away.

    Returns:
        (1, tokens, heads, head width), and no weights.

    Raises:
        ValueError: it is not told where the sequences begin, as when the sentence encoder is called by itself.
    """
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
    # `split`, whose backward is one concatenation; slices would each fill a gradient of all tokens.
    sizes = [count * length for count, length in runs]
    attended_runs = []
    for run, *parts in zip(runs, *(states.squeeze(0).split(sizes, dim=1) for states in (query, key, value))):
        queries, keys, values = (states.unflatten(1, run).transpose(0, 1) for states in parts)
        mask = _band(run[1], sliding_window, query.device)
        attended = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, dropout_p=dropout, scale=scaling)
        attended_runs.append(attended.transpose(1, 2).flatten(0, 1))
    return torch.cat(attended_runs).unsqueeze(0), None


def has_variable_length_kernel(states: Tensor) -> bool:
    return varlen_attn is not None and states.is_cuda and states.dtype in (torch.bfloat16, torch.float16)


def _band(length: int, width: int | None, device: torch.device) -> Tensor | None:
    """(length, length), True where two tokens are fewer than `width` tokens apart; None where all are."""
    if width is None or length <= width:
        return None
    places = torch.arange(length, device=device)
    return (places - places.unsqueeze(1)).abs() < width


ALL_ATTENTION_FUNCTIONS.register("packed", packed_attention)


def scatter_sentences(vectors: Tensor, sentences: Sentences, num_documents: int) -> tuple[Tensor, Tensor]:
    """Sentence vectors at their places in the documents.

    Args:
        vectors: (sentences, hidden).
        sentences: their places.
        num_documents: rows of the batch.

    Returns:
        (documents, most sentences, hidden), zero where there is no sentence, and the tokens of each sentence
        (documents, most sentences), int64, 0 where there is none.

    >>> places = find_sentences(torch.tensor([[7, 7], [7, 1]]), torch.ones(2, 2), start_token_id=7)
    >>> scatter_sentences(torch.tensor([[1.0], [2.0], [3.0]]), places, num_documents=2)[0].squeeze(-1)
    tensor([[1., 2.],
            [3., 0.]])
    """
    shape = (num_documents, int(sentences.position.max()) + 1)
    lengths = sentences.length.new_zeros(shape)
    lengths[sentences.document, sentences.position] = sentences.length
    documents = vectors.new_zeros(*shape, vectors.shape[-1])
    return documents.index_put((sentences.document, sentences.position), vectors), lengths
