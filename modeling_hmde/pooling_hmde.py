"""From hidden states of tokens to vectors of sentences: a table of weights, for packed sentences and for exporters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .configuration_hmde import SentencePooling

# The weight of a token in the vector of its sentence, by its place there, from 0, and by the sentence's number of
# tokens. `weightedmean` is SGPT's (Muennighoff, 2022).
TOKEN_WEIGHTS: dict[SentencePooling, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": lambda place, length: place == 0,
    "mean": lambda place, length: 1 / length,
    "lasttoken": lambda place, length: place == length - 1,
    "weightedmean": lambda place, length: (place + 1) / (length * (length + 1) / 2),
    "mean_sqrt_len_tokens": lambda place, length: length**-0.5,
}


def pool(pooling: SentencePooling, hidden_states: Tensor, lengths: Tensor, encoder: Any) -> Tensor:
    """Vectors of sentences that lie end to end; sums are taken in float32 at least.

    Args:
        hidden_states: (tokens, hidden). Of a padded batch, `hidden_states[attention_mask.bool()]`.
        lengths: (sentences,), tokens of each sentence, special ones included if they are read.
        encoder: its own pooler gives `pooler`.

    Returns:
        (sentences, hidden).
    """
    ends = lengths.cumsum(0)
    if pooling in ("cls", "pooler"):
        first = hidden_states[ends - lengths]
        return first if pooling == "cls" else encoder.pooler(first.unsqueeze(1))
    if pooling == "lasttoken":
        return hidden_states[ends - 1]
    if pooling == "max":
        return torch.segment_reduce(hidden_states, "max", lengths=lengths)
    summable = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
    sentence = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    place = torch.arange(len(summable), device=lengths.device) - (ends - lengths)[sentence]
    weighted = summable * TOKEN_WEIGHTS[pooling](place, lengths[sentence].to(summable.dtype)).unsqueeze(1)
    if weighted.is_cuda:  # where additions by index have no fixed order
        sums = torch.segment_reduce(weighted, "sum", lengths=lengths)
    else:  # five times as fast
        sums = weighted.new_zeros(len(lengths), weighted.shape[1]).index_add(0, sentence, weighted)
    return sums.to(hidden_states.dtype)


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
