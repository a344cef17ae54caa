"""LASER's encoder: bidirectional LSTMs, whose states are max-pooled (Artetxe and Schwenk, 2019)."""

# No `from __future__ import annotations` here: it turns annotations into text, and @strict does not check text.

from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling


@strict
class LaserConfig(PreTrainedConfig):
    """The defaults are those of LASER_1 (Li 2021, table 4.1); LASER_6 has six layers.

    Args:
        embedding_size: width of the vectors of words.
        hidden_size: width of a state and of the sentence vector, half of it in either direction.
        hidden_dropout_prob: dropout on the vectors of words, between layers and on the states.
    """

    model_type = "laser"

    vocab_size: int = 50_000
    embedding_size: int = 512
    hidden_size: int = 1024
    num_hidden_layers: int = 1
    hidden_dropout_prob: float | int = 0.1
    pad_token_id: int | None = 1


class LaserModel(PreTrainedModel):
    """The first state of a text is its vector, the maximum over the states of all its tokens, so that what reads the
    state of a start token (`cls`) reads that."""

    config_class = LaserConfig
    base_model_prefix = "laser"
    _input_embed_layer = "embeddings"

    def __init__(self, config: LaserConfig) -> None:
        if config.hidden_size % 2:
            raise ValueError(f"hidden_size is {config.hidden_size}; it must be even, half of it in either direction")
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.lstm = nn.LSTM(
            config.embedding_size,
            config.hidden_size // 2,
            config.num_hidden_layers,
            batch_first=True,
            bidirectional=True,
            dropout=config.hidden_dropout_prob if config.num_hidden_layers > 1 else 0.0,
        )
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.LSTM):
            for weight in module.parameters():
                nn.init.uniform_(weight, -0.1, 0.1)
        elif isinstance(module, nn.Embedding):
            nn.init.uniform_(module.weight, -0.1, 0.1)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutputWithPooling:
        """
        Args:
            input_ids: (rows, tokens), padding at the end.
            attention_mask: (rows, tokens), 1 for real tokens. None: all are.

        Returns:
            last_hidden_state: (rows, tokens, hidden), of which the first is the vector of the row.
            pooler_output: (rows, hidden), the vectors.
        """
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        lengths = attention_mask.sum(dim=1).cpu()
        packed = pack_padded_sequence(
            self.dropout(self.embeddings(input_ids)), lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=input_ids.shape[1])
        states = self.dropout(states)
        vectors = states.masked_fill(attention_mask.unsqueeze(-1) == 0, -torch.inf).amax(dim=1)
        return BaseModelOutputWithPooling(
            last_hidden_state=torch.cat([vectors.unsqueeze(1), states[:, 1:]], dim=1), pooler_output=vectors
        )


LaserConfig.register_for_auto_class()
LaserModel.register_for_auto_class("AutoModel")

__all__ = ["LaserConfig", "LaserModel"]
