"""NTDV's encoder: the frozen encoders of two models of translation, and above them a GRU and a self-attention that both
languages share (Li 2021, chapter 3). And the encoder of such a model of translation, by itself."""

# No `from __future__ import annotations` here: it turns annotations into text, and @strict does not check text.

from dataclasses import dataclass
from typing import Any, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling


@strict
class GRUConfig(PreTrainedConfig):
    """The defaults are those of Nematus in the thesis (section 3.3), whose encoder has 1024 states in either direction.

    Args:
        embedding_size: width of the vectors of words.
        hidden_size: width of a state, half of it in either direction.
        hidden_dropout_prob: dropout on the vectors of words, between layers and on the states.
        source_language: the language that is read; None where that is not known.
        target_language: the language into which the decoder beside this encoder translates.
    """

    model_type = "gru"

    vocab_size: int = 85_000
    embedding_size: int = 500
    hidden_size: int = 2048
    num_hidden_layers: int = 1
    hidden_dropout_prob: float | int = 0.0
    pad_token_id: int | None = 1
    source_language: str | None = None
    target_language: str | None = None


class GRUModel(PreTrainedModel):
    """The encoder of a model of translation with attention: its decoder looks at the states of all tokens."""

    config_class = GRUConfig
    base_model_prefix = "encoder"
    _input_embed_layer = "embeddings"

    def __init__(self, config: GRUConfig) -> None:
        if config.hidden_size % 2:
            raise ValueError(f"hidden_size is {config.hidden_size}; it must be even, half of it in either direction")
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.gru = nn.GRU(
            config.embedding_size,
            config.hidden_size // 2,
            config.num_hidden_layers,
            batch_first=True,
            bidirectional=True,
            dropout=config.hidden_dropout_prob if config.num_hidden_layers > 1 else 0.0,
        )
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.GRU):
            initialise_gru(module)
        elif isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -0.1, 0.1)
            if module.padding_idx is not None:
                init.zeros_(module.weight[module.padding_idx])

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> BaseModelOutput:
        """
        Args:
            input_ids: (rows, tokens), padding at the end.
            attention_mask: (rows, tokens), 1 for real tokens. None: all are.

        Returns:
            last_hidden_state: (rows, tokens, hidden).
        """
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        states = without_padding(self.gru, self.dropout(self.embeddings(input_ids)), attention_mask)
        return BaseModelOutput(last_hidden_state=self.dropout(states))


@strict
class NTDVConfig(PreTrainedConfig):
    """The defaults are those of cNV_con (Li 2021, table 3.1).

    Args:
        embedding_size, num_hidden_layers: of the two encoders.
        state_size: d_h, width of a state of the shared GRU and of what each head makes of a text. A state of the
            encoders has that width in either direction.
        num_attention_heads: r.
        vector: what is made of the heads, their `sum` (equation 3.3) or their concatenation (`concat`, equation 3.4).
            Both have the same weights.
        languages: what the two encoders read, ISO 639-1 codes.
    """

    model_type = "ntdv"

    vocab_size: int = 85_000
    embedding_size: int = 500
    num_hidden_layers: int = 1
    state_size: int = 1024
    num_attention_heads: int = 4
    vector: Literal["sum", "concat"] = "concat"
    languages: list[str] | None = None
    pad_token_id: int | None = 1

    @property
    def hidden_size(self) -> int:
        """Width of the vector of a text."""
        return self.state_size * (self.num_attention_heads if self.vector == "concat" else 1)


@dataclass
class NTDVOutput(BaseModelOutputWithPooling):
    """
    Args:
        contexts: (rows, heads, state size), the context vectors p_i. The decoder sees nothing but these.
    """

    contexts: Tensor | None = None


class NTDVModel(PreTrainedModel):
    """The first state of a text is its vector, the mean over the states of all its tokens, so that what reads the state
    of a start token (`cls`) reads that.

    Which of the two encoders reads a text is decided by its tokens: each has a weight of evidence for the one language
    or the other, which their counts in the training pairs gave it. `languages` decides in their place.
    """

    config_class = NTDVConfig
    base_model_prefix = "ntdv"

    evidence: Tensor

    def __init__(self, config: NTDVConfig) -> None:
        if config.num_attention_heads < 1:
            raise ValueError(f"num_attention_heads is {config.num_attention_heads}; it must be at least 1")
        super().__init__(config)
        width, heads = config.state_size, config.num_attention_heads
        encoder_config = GRUConfig(
            vocab_size=config.vocab_size,
            embedding_size=config.embedding_size,
            hidden_size=2 * width,
            num_hidden_layers=config.num_hidden_layers,
            pad_token_id=config.pad_token_id,
        )
        self.encoders = nn.ModuleList(GRUModel(encoder_config) for _ in range(2))
        self.gru = nn.GRU(2 * width, width, batch_first=True)
        self.query = nn.Linear(width, heads * width, bias=False)
        self.key = nn.Linear(width, heads * width, bias=False)
        self.value = nn.Linear(width, heads * width, bias=False)
        self.register_buffer("evidence", torch.zeros(config.vocab_size))  # (vocabulary,), above 0 for the second one
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.GRU):
            initialise_gru(module)
        elif isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
        elif isinstance(module, NTDVModel):
            init.zeros_(module.evidence)

    def identify(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(rows, tokens) twice -> (rows,), int64: the language of each text, by its place among the two."""
        return ((self.evidence[input_ids].float() * attention_mask).sum(dim=1) > 0).long()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        languages: Tensor | None = None,
        **kwargs: Any,
    ) -> NTDVOutput:
        """
        Args:
            input_ids: (rows, tokens), padding at the end.
            attention_mask: (rows, tokens), 1 for real tokens. None: all are.
            languages: (rows,), int64, the place of each text's language in `config.languages`. None: their tokens say.

        Returns:
            last_hidden_state: (rows, tokens, hidden), of which the first is the vector of the row, and the others are
                what the heads make of their token.
            pooler_output: (rows, hidden), the vectors.
            contexts: (rows, heads, state size), of which the vectors are made.
        """
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if languages is None:
            languages = self.identify(input_ids, attention_mask)
        rows_of = [(languages == language).nonzero().flatten() for language in range(2)]
        parts = [
            encoder(input_ids[rows], attention_mask[rows]).last_hidden_state
            for encoder, rows in zip(self.encoders, rows_of)
            if len(rows)
        ]
        states = without_padding(self.gru, torch.cat(parts)[torch.cat(rows_of).argsort()], attention_mask)
        heads = self._heads(states, attention_mask)
        is_token = attention_mask[:, None, :, None]
        contexts = (heads * is_token).sum(dim=2) / is_token.sum(dim=2)
        if self.config.vector == "sum":
            vectors, token_vectors = contexts.sum(dim=1), heads.sum(dim=1)
        else:
            vectors, token_vectors = contexts.flatten(1), heads.transpose(1, 2).flatten(2)
        return NTDVOutput(
            last_hidden_state=torch.cat([vectors.unsqueeze(1), token_vectors[:, 1:]], dim=1),
            pooler_output=vectors,
            contexts=contexts,
        )

    def _heads(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        """U_i (equation 3.1): (rows, tokens, state size) -> (rows, heads, tokens, state size)."""
        query, key, value = (
            project(states).unflatten(-1, (-1, self.config.state_size)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        return F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask.bool()[:, None, None, :])


def without_padding(gru: nn.GRU, inputs: Tensor, attention_mask: Tensor) -> Tensor:
    """The states of a GRU that reads the real tokens of each row, (rows, tokens, width), 0 in padding."""
    packed = pack_padded_sequence(inputs, attention_mask.sum(dim=1).cpu(), batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(gru(packed)[0], batch_first=True, total_length=inputs.shape[1])[0]


def initialise_gru(gru: nn.GRU) -> None:
    for name, weight in gru.named_parameters():
        if name.startswith("weight_hh"):
            for gate in weight.chunk(3):
                init.orthogonal_(gate)
        elif name.startswith("weight_ih"):
            init.xavier_uniform_(weight)
        else:
            init.zeros_(weight)


for config, model in ((GRUConfig, GRUModel), (NTDVConfig, NTDVModel)):
    config.register_for_auto_class()
    model.register_for_auto_class("AutoModel")

__all__ = ["GRUConfig", "GRUModel", "NTDVConfig", "NTDVModel"]
