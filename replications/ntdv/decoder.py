"""The decoder of a translation model with attention, on two of which an NTDV stands."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig

from replications.translation.encoder import Decoder


class GRUDecoder(Decoder):
    """A conditional GRU with attention over the encoder's hidden states (Nematus; Sennrich et al., 2017): its hidden
    state first reads the token before, then what it looks at, and predicts from both and the token.

    It translates into one language, and all of its widths are the encoder's: those of word vectors, and for its hidden
    state that of the encoder's in one direction.

    Args:
        encoder: configuration of the encoder.

    Raises:
        ValueError: the encoder is no GRU.
    """

    def __init__(self, encoder: PreTrainedConfig) -> None:
        super().__init__()
        if encoder.model_type != "gru":
            raise ValueError(
                f"a translation model has an encoder of model_type gru, and not {encoder.model_type}; name that in "
                "architecture"
            )
        token_size, memory_size = encoder.embedding_size, encoder.hidden_size
        width = memory_size // 2
        self.tokens = nn.Embedding(encoder.vocab_size, token_size, padding_idx=encoder.pad_token_id)
        nn.init.uniform_(self.tokens.weight, -0.1, 0.1)
        self.first_state = nn.Linear(memory_size, width)
        self.after_token = nn.GRUCell(token_size, width)
        self.after_look = nn.GRUCell(memory_size, width)
        self.query = nn.Linear(width, memory_size, bias=False)
        self.key = nn.Linear(memory_size, memory_size)
        self.score = nn.Linear(memory_size, 1, bias=False)
        self.joined = nn.Linear(width + token_size + memory_size, token_size)
        self.lm_head = nn.Linear(token_size, encoder.vocab_size)
        self.dropout = nn.Dropout(encoder.hidden_dropout_prob)

    def forward(self, memory: Tensor, mask: Tensor | None, languages: Tensor, tokens: Tensor) -> Tensor:
        """See Decoder. `languages` are not read: there is one target language."""
        is_state = torch.ones_like(memory[..., 0]) if mask is None else mask.to(memory)
        mean = (memory * is_state.unsqueeze(-1)).sum(dim=1) / is_state.sum(dim=1, keepdim=True)
        state = torch.tanh(self.first_state(mean))
        keys = self.key(memory)
        given = self.dropout(self.tokens(tokens))
        states, looks = [], []
        for token in given.unbind(dim=1):
            state = self.after_token(token, state)
            scores = self.score(torch.tanh(keys + self.query(state).unsqueeze(1))).squeeze(-1)
            weights = F.softmax(scores.masked_fill(is_state == 0, -torch.inf), dim=-1)
            look = (weights.unsqueeze(1) @ memory).squeeze(1)
            state = self.after_look(look, state)
            states.append(state)
            looks.append(look)
        joined = torch.cat([torch.stack(states, dim=1), given, torch.stack(looks, dim=1)], dim=-1)
        return self.dropout(torch.tanh(self.joined(joined)))
