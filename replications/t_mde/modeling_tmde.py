"""T-MDE_P's encoder: a pre-norm transformer, whose sentence vector is gathered from the start token in all layers and
from a pyramid of learned queries (Li 2021, section 4.2.2)."""

# No `from __future__ import annotations` here: it turns annotations into text, and @strict does not check text.

from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import RobertaPreLayerNormConfig, RobertaPreLayerNormModel
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import BaseModelOutputWithPooling


@strict
class TMDEConfig(RobertaPreLayerNormConfig):
    """
    Args:
        num_hidden_layers: with the last, which makes nothing but the sentence vector: seven (table 4.1).
        num_queries: at the base of the pyramid, half of which go on in each of the two layers above.
    """

    model_type = "tmde_p"

    num_hidden_layers: int = 7
    num_queries: int = 32


class TMDEModel(RobertaPreLayerNormModel):
    """The first state of a text is its vector P, so that what reads the state of a start token (`cls`) reads that.

    With seven layers: six turn tokens into H^1 to H^6 (equations 4.4 and 4.5). Queries look at H^4 by the weights of
    the fifth layer, half of them at all of these by those of the sixth, and half of these likewise by those of the
    seventh (equations 4.8 to 4.13). The seventh has no tokens of its own: through it the start token of H^6 looks at
    the start tokens of all layers and at the queries that are left, and becomes P (4.14 to 4.17). So the layer that
    reads H^k is the one whose index, from 0, is k, as in equation 4.5, and there are as many weights as in table 4.1.
    Two things are read otherwise than they are printed: each layer hands on what its feed-forward network makes of the
    queries (Z_y; equations 4.10 and 4.12 take its input, Z_x), and that network is its own (4.11 and 4.13 repeat
    FFN^4).
    """

    config_class = TMDEConfig

    def __init__(self, config: TMDEConfig) -> None:
        if config.num_hidden_layers < 3:
            raise ValueError(f"num_hidden_layers is {config.num_hidden_layers}; the pyramid of queries needs 3")
        if config.num_queries < 4:
            raise ValueError(f"num_queries is {config.num_queries}; it must be at least 4, of which 1 is left at last")
        super().__init__(config, add_pooling_layer=False)
        self.queries = nn.Parameter(torch.empty(config.num_queries, config.hidden_size))
        self.queries.data.normal_(std=config.initializer_range)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutputWithPooling:
        """
        Args:
            input_ids: (rows, tokens), each row beginning with a start token.
            attention_mask: (rows, tokens), 1 for real tokens. None: all are.

        Returns:
            last_hidden_state: (rows, tokens, hidden), of which the first is the vector of the row.
            pooler_output: (rows, hidden), the vectors.
        """
        states = self.embeddings(input_ids=input_ids)
        seen = create_bidirectional_mask(config=self.config, inputs_embeds=states, attention_mask=attention_mask)
        is_token = None if attention_mask is None else attention_mask.bool()[:, None, None, :]
        *layers, last = self.encoder.layer
        starts: list[Tensor] = []
        for index, layer in enumerate(layers):
            if index == len(layers) - 2:
                queries = look(layer, self.queries.expand(len(states), -1, -1), states, is_token)
            elif index == len(layers) - 1:
                queries = look(layer, queries[:, : self.config.num_queries // 2], queries)
            states = layer(states, seen)
            starts.insert(0, states[:, :1])
        queries = look(last, queries[:, : self.config.num_queries // 4], queries)
        vectors = look(last, states[:, :1], torch.cat([*starts, queries], dim=1))
        states = self.LayerNorm(torch.cat([vectors, states[:, 1:]], dim=1))
        return BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=states[:, 0])


def look(layer: Any, queries: Tensor, states: Tensor, mask: Tensor | None = None) -> Tensor:
    """A layer, by whose weights some vectors look at others than themselves.

    Args:
        layer: of a RobertaPreLayerNormModel.
        queries: (rows, queries, hidden).
        states: (rows, states, hidden), that are looked at.
        mask: (rows, 1, 1, states), bool, which of them can be.

    Returns:
        (rows, queries, hidden)
    """
    attention, projections = layer.attention, layer.attention.self
    normed_queries, normed = attention.LayerNorm(queries), attention.LayerNorm(states)
    query, key, value = (
        project(vectors).unflatten(-1, (projections.num_attention_heads, -1)).transpose(1, 2)
        for project, vectors in (
            (projections.query, normed_queries),
            (projections.key, normed),
            (projections.value, normed),
        )
    )
    dropout = projections.dropout.p if layer.training else 0.0
    seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    return layer.feed_forward_chunk(attention.output(seen.transpose(1, 2).flatten(2), queries))


TMDEConfig.register_for_auto_class()
TMDEModel.register_for_auto_class("AutoModel")

__all__ = ["TMDEConfig", "TMDEModel"]
