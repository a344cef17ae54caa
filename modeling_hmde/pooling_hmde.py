"""From hidden states of tokens to vectors of texts: one dictionary of poolings.

Every function takes the hidden states (tokens, hidden) of texts that lie end to end, the number of tokens of each text
(texts,), and the encoder, and gives one vector for each text (texts, hidden). A padded batch is passed as
`hidden_states[attention_mask.bool()]` with the lengths `attention_mask.sum(dim=1)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .configuration_hmde import SentencePooling


def first_token(hidden_states: Tensor, lengths: Tensor, encoder: Any) -> Tensor:
    """The hidden state of the start token."""
    return hidden_states[lengths.cumsum(0) - lengths]


def mean_of_tokens(hidden_states: Tensor, lengths: Tensor, encoder: Any) -> Tensor:
    """The mean over all tokens, start and end token included if they are read; summed in float32 at least."""
    summable = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
    if summable.is_cuda:  # where additions by index have no fixed order
        return torch.segment_reduce(summable, "mean", lengths=lengths).to(hidden_states.dtype)
    texts = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    sums = summable.new_zeros(len(lengths), summable.shape[1]).index_add(0, texts, summable)  # five times as fast
    return (sums / lengths.unsqueeze(1)).to(hidden_states.dtype)


def root_length_mean(hidden_states: Tensor, lengths: Tensor, encoder: Any) -> Tensor:
    """The sum over all tokens, divided by the root of their number."""
    return mean_of_tokens(hidden_states, lengths, encoder) * lengths.sqrt().unsqueeze(1).to(hidden_states.dtype)


def weighted_mean_of_tokens(hidden_states: Tensor, lengths: Tensor, encoder: Any) -> Tensor:
    """The mean over all tokens, each weighted by its position, counted from 1 (SGPT, Muennighoff, 2022)."""
    summable = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
    before = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    positions = torch.arange(1, len(summable) + 1, device=summable.device) - before
    sums = torch.segment_reduce(summable * positions.unsqueeze(1), "sum", lengths=lengths)
    return (sums / (lengths * (lengths + 1) / 2).unsqueeze(1)).to(hidden_states.dtype)


def max_of_tokens(hidden_states: Tensor, lengths: Tensor, encoder: Any) -> Tensor:
    """The largest value of each dimension among all tokens."""
    return torch.segment_reduce(hidden_states, "max", lengths=lengths)


def last_token(hidden_states: Tensor, lengths: Tensor, encoder: Any) -> Tensor:
    """The hidden state of the last token, which is an end token if the tokenizer puts one there."""
    return hidden_states[lengths.cumsum(0) - 1]


def pooler_output(hidden_states: Tensor, lengths: Tensor, encoder: Any) -> Tensor:
    """What the encoder's own pooler makes of the start token."""
    return encoder.pooler(first_token(hidden_states, lengths, encoder).unsqueeze(1))


POOLINGS: dict[SentencePooling, Callable[[Tensor, Tensor, Any], Tensor]] = {
    "cls": first_token,
    "mean": mean_of_tokens,
    "pooler": pooler_output,
    "lasttoken": last_token,
    "weightedmean": weighted_mean_of_tokens,
    "max": max_of_tokens,
    "mean_sqrt_len_tokens": root_length_mean,
}

# The same for exporters: the weight of a token in the vector of its sentence, by its place there, from 0, and by the
# sentence's number of tokens.
TOKEN_WEIGHTS: dict[SentencePooling, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": lambda place, length: place == 0,
    "mean": lambda place, length: 1 / length,
    "lasttoken": lambda place, length: place == length - 1,
    "weightedmean": lambda place, length: (place + 1) / (length * (length + 1) / 2),
    "mean_sqrt_len_tokens": lambda place, length: length**-0.5,
}


def pool_sentences(pooling: SentencePooling, hidden_states: Tensor, real: Tensor, sentence_lengths: Tensor) -> Tensor:
    """The poolings but `pooler` for exporters: no shape depends on what the tokens are.

    Args:
        hidden_states: (documents, tokens, hidden).
        real: (documents, tokens), False for padding.
        sentence_lengths: (documents, sentences), tokens of each sentence, 0 where there is none.

    Returns:
        (documents, sentences, hidden), zero where there is no sentence.
    """
    index = real.long().cumsum(dim=1) - 1  # among the real tokens of the document
    ends = sentence_lengths.cumsum(dim=1)
    sentence = (index.unsqueeze(-1) >= ends.unsqueeze(1)).sum(dim=-1)
    summable = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
    places = sentence.unsqueeze(-1).expand_as(summable)
    vectors = summable.new_zeros(*sentence_lengths.shape, summable.shape[-1])
    if pooling == "max":
        largest = summable.masked_fill(~real.unsqueeze(-1), -torch.inf)
        vectors = vectors.scatter_reduce(1, places, largest, "amax", include_self=False)
        return vectors.masked_fill((sentence_lengths == 0).unsqueeze(-1), 0).to(hidden_states.dtype)
    length = sentence_lengths.gather(1, sentence).clamp(min=1).to(summable.dtype)
    place = (index - (ends - sentence_lengths).gather(1, sentence)).to(summable.dtype)
    weights = TOKEN_WEIGHTS[pooling](place, length).to(summable.dtype) * real
    return vectors.scatter_add(1, places, summable * weights.unsqueeze(-1)).to(hidden_states.dtype)
