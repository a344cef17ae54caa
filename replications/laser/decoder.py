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

    As the thesis describes it; its code reads the hidden state before, which the LSTM has anyway, once more beside
    them.

    Args:
        encoder: its word vectors are as wide as those here.
        num_languages: target languages.
        width: of the LSTM.
    """

    def __init__(self, encoder: PreTrainedModel, num_languages: int, width: int) -> None:
        super().__init__()
        hidden, vocabulary = encoder.config.hidden_size, encoder.config.vocab_size
        token_size = cast(nn.Embedding, encoder.get_input_embeddings()).embedding_dim
        self.tokens = nn.Embedding(vocabulary, token_size, padding_idx=encoder.config.pad_token_id)
        nn.init.uniform_(self.tokens.weight, -0.1, 0.1)
        self.languages = nn.Embedding(num_languages, LANGUAGE_SIZE)
        self.first_state = nn.Linear(hidden, width)
        self.first_cell = nn.Linear(hidden, width)
        self.layer = nn.LSTM(token_size + hidden + LANGUAGE_SIZE, width, batch_first=True)
        self.lm_head = nn.Linear(width, vocabulary)
        self.dropout = nn.Dropout(getattr(encoder.config, "hidden_dropout_prob", 0.1))

    def forward(self, memory: Tensor, mask: Tensor | None, languages: Tensor, tokens: Tensor) -> Tensor:
        beside = torch.cat([memory, self.languages(languages).unsqueeze(1)], dim=-1).expand(-1, tokens.shape[1], -1)
        start = self.first_state(memory).transpose(0, 1), self.first_cell(memory).transpose(0, 1)
        hidden_states, _ = self.layer(torch.cat([self.dropout(self.tokens(tokens)), beside], dim=-1), start)
        return self.dropout(hidden_states)
