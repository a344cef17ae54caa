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
    return torch.segment_reduce(summable, "mean", lengths=lengths).to(hidden_states.dtype)


def pooler_output(hidden_states: Tensor, lengths: Tensor, encoder: Any) -> Tensor:
    """What the encoder's own pooler makes of the start token."""
    return encoder.pooler(first_token(hidden_states, lengths, encoder).unsqueeze(1))


POOLINGS: dict[SentencePooling, Callable[[Tensor, Tensor, Any], Tensor]] = {
    "cls": first_token,
    "mean": mean_of_tokens,
    "pooler": pooler_output,
}


def mean_of_sentences(hidden_states: Tensor, real: Tensor, sentence_lengths: Tensor) -> Tensor:
    """The pooling `mean` for exporters: no shape depends on what the tokens are.

    Args:
        hidden_states: (documents, tokens, hidden).
        real: (documents, tokens), False for padding.
        sentence_lengths: (documents, sentences), tokens of each sentence, 0 where there is none.

    Returns:
        (documents, sentences, hidden), zero where there is no sentence.
    """
    index = real.long().cumsum(dim=1) - 1  # among the real tokens of the document
    sentences_before = (index.unsqueeze(-1) >= sentence_lengths.cumsum(dim=1).unsqueeze(1)).sum(dim=-1)
    summable = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32)) * real.unsqueeze(-1)
    sentence = sentences_before.clamp(max=sentence_lengths.shape[1] - 1).unsqueeze(-1).expand_as(summable)
    sums = summable.new_zeros(*sentence_lengths.shape, summable.shape[-1]).scatter_add(1, sentence, summable)
    return (sums / sentence_lengths.clamp(min=1).unsqueeze(-1)).to(hidden_states.dtype)
