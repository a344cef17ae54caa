"""LASER's decoder, needed in training alone."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from replications.translation.encoder import LANGUAGE_SIZE, Decoder


class LSTMDecoder(Decoder):
    """One layer of an LSTM, whose first hidden state and cell are made of the vector, and which reads the vector again
    beside each token and the target language.

    In the authors' code it also reads the hidden state before, once more beside them, zeros at the first token. The
    thesis does not say so, but its count of weights (table 4.1) has that state.

    Args:
        encoder: its word vectors are as wide as those here.
        num_languages: target languages.
        width: of the LSTM.
        rereads_state: whether it reads the state before once more.
    """

    def __init__(self, encoder: PreTrainedModel, num_languages: int, width: int, rereads_state: bool) -> None:
        super().__init__()
        hidden, vocabulary = encoder.config.hidden_size, encoder.config.vocab_size
        token_size = cast(nn.Embedding, encoder.get_input_embeddings()).embedding_dim
        self.tokens = nn.Embedding(vocabulary, token_size, padding_idx=encoder.config.pad_token_id)
        nn.init.uniform_(self.tokens.weight, -0.1, 0.1)
        self.languages = nn.Embedding(num_languages, LANGUAGE_SIZE)
        self.first_state = nn.Linear(hidden, width)
        self.first_cell = nn.Linear(hidden, width)
        self.rereads_state = rereads_state
        self.cell = nn.LSTMCell(token_size + hidden + LANGUAGE_SIZE + width * rereads_state, width)
        self.lm_head = nn.Linear(width, vocabulary)
        self.dropout = nn.Dropout(getattr(encoder.config, "hidden_dropout_prob", 0.1))

    def forward(self, memory: Tensor, mask: Tensor | None, languages: Tensor, tokens: Tensor) -> Tensor:
        vectors = memory.squeeze(1)
        beside = torch.cat([vectors, self.languages(languages)], dim=-1)
        state, cell = self.first_state(vectors), self.first_cell(vectors)
        read = torch.zeros_like(state)
        states = []
        for embedded in self.dropout(self.tokens(tokens)).unbind(dim=1):
            inputs = [embedded, beside, read] if self.rereads_state else [embedded, beside]
            state, cell = self.cell(torch.cat(inputs, dim=-1), (state, cell))
            read = self.dropout(state)
            states.append(read)
        return torch.stack(states, dim=1)
