"""The document encoder: a shallow transformer over sentence vectors (the paper's upper transformer)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bert.modeling_bert import eager_attention_forward

from .attention_hmde import PACKED_ATTENTION, packed_attention_arguments
from .configuration_hmde import HMDEConfig


class ResidualProjection(nn.Linear):
    """The last linear layer of a sublayer, whose output is added to the residual stream. With `pre` norm it starts at
    zero."""


class DocumentAttention(nn.Module):
    """Self-attention among the sentences of a document. (documents, sentences, hidden) -> the same shape, and the
    attention weights (documents, heads, sentences, sentences), or None from an attention that does not keep them."""

    is_causal = False

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__()
        self.config = config
        self.head_dim = config.hidden_size // config.num_document_attention_heads
        self.scaling = self.head_dim**-0.5
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = ResidualProjection(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.document_dropout)  # the attention function applies it, to its weights

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        heads = (*hidden_states.shape[:-1], -1, self.head_dim)
        query, key, value = (
            project(hidden_states).view(heads).transpose(1, 2) for project in (self.query, self.key, self.value)
        )
        implementation = self.config._attn_implementation
        attend: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        attended, weights = attend(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.dropout.p if self.dropout.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        return self.output(attended.reshape(hidden_states.shape)), weights


class DocumentFeedForward(nn.Module):
    """(documents, sentences, hidden) -> the same shape."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__()
        self.input = nn.Linear(config.hidden_size, config.document_intermediate_size)
        self.activation = ACT2FN[config.document_hidden_act]
        self.output = ResidualProjection(config.document_intermediate_size, config.hidden_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.output(self.activation(self.input(hidden_states)))


class DocumentLayer(GradientCheckpointingLayer):
    """One transformer layer over sentence vectors. `post` norm follows each sum, as in BERT; `pre` norm precedes each
    sublayer."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__()
        self.pre_norm = config.document_norm == "pre"
        self.attention = DocumentAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.document_layer_norm_eps)
        self.feed_forward = DocumentFeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.document_layer_norm_eps)
        self.dropout = nn.Dropout(config.document_dropout)

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        """The hidden states (documents, sentences, hidden) and the attention weights (see `DocumentAttention`)."""
        sublayer_input = self.attention_norm(hidden_states) if self.pre_norm else hidden_states
        attended, weights = self.attention(sublayer_input, attention_mask, **kwargs)
        hidden_states = hidden_states + self.dropout(attended)
        if self.pre_norm:
            return hidden_states + self.dropout(self.feed_forward(self.feed_forward_norm(hidden_states))), weights
        hidden_states = self.attention_norm(hidden_states)
        return self.feed_forward_norm(hidden_states + self.dropout(self.feed_forward(hidden_states))), weights


class DocumentPositions(nn.Embedding):
    """A learned vector for the DBOS vector and for each sentence position."""


class DocumentEncoder(nn.Module):
    """The paper's upper transformer: a learned DBOS vector and the sentence vectors, contextualised and pooled."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__()
        self.config = config
        self.dbos = nn.Parameter(torch.empty(config.hidden_size))
        self.sentence_vector_dropout = nn.Dropout(config.sentence_vector_dropout)
        if config.document_positions:
            self.positions = DocumentPositions(config.max_sentences + 1, config.hidden_size)
            if config.document_norm == "post":
                self.input_norm = nn.LayerNorm(config.hidden_size, eps=config.document_layer_norm_eps)
                self.input_dropout = nn.Dropout(config.document_dropout)
        self.layers = nn.ModuleList(DocumentLayer(config) for _ in range(config.num_document_layers))

    def forward(
        self,
        sentence_embeddings: Tensor,
        sentence_lengths: Tensor,
        all_hidden_states: list[Tensor] | None = None,
        all_attentions: list[Tensor | None] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Contextualise and pool.

        Args:
            sentence_embeddings: (documents, sentences, hidden).
            sentence_lengths: (documents, sentences), the tokens of each sentence, 0 where there is none.
            all_hidden_states, all_attentions: lists to which those of `HMDEOutput` are appended.

        Returns:
            the contextualised sentences, of the same shape, zero where there is none, and the document embeddings
            (documents, hidden), their mean. With `document_residual`, the sentence vectors are mixed into both.

        Raises:
            ValueError: a document has more sentences than the model has positions.
        """
        dbos = self.dbos.to(sentence_embeddings.dtype).expand(sentence_embeddings.shape[0], 1, -1)
        hidden_states = torch.cat([dbos, self.sentence_vector_dropout(sentence_embeddings)], dim=1)
        mask = nn.functional.pad(sentence_lengths > 0, (1, 0), value=True)
        hidden_states = self._add_positions(hidden_states).masked_fill(~mask.unsqueeze(-1), 0)
        layers = self._packed_layers if self.config._attn_implementation in PACKED_ATTENTION else self._padded_layers
        if all_hidden_states is not None:
            all_hidden_states.append(hidden_states)
        for hidden_states, layer_attentions in layers(hidden_states, mask):  # noqa: B020, each output is the next input
            if all_hidden_states is not None:
                all_hidden_states.append(hidden_states)
            if all_attentions is not None:
                all_attentions.append(layer_attentions)
        pooled_dtype = torch.promote_types(hidden_states.dtype, torch.float32)
        contextualised = hidden_states.to(pooled_dtype)
        weights = self.pooling_weights(sentence_lengths, pooled_dtype).unsqueeze(-1)
        if self.config.document_residual:
            residual = nn.functional.pad(sentence_embeddings.to(pooled_dtype), (0, 0, 1, 0))
            norm, residual_norm = (
                (weights * vectors).sum(dim=1, keepdim=True).norm(dim=-1, keepdim=True)
                for vectors in (contextualised, residual)
            )
            scaled = contextualised * (residual_norm / norm)
            contextualised = torch.lerp(scaled, residual, self.config.document_residual)
        documents = (weights * contextualised).sum(dim=1)
        return contextualised[:, 1:].to(hidden_states.dtype), documents.to(hidden_states.dtype)

    def _add_positions(self, hidden_states: Tensor) -> Tensor:
        if not self.config.document_positions:
            return hidden_states
        if hidden_states.shape[1] > self.positions.num_embeddings:
            raise ValueError(
                f"a document has {hidden_states.shape[1] - 1} sentences, but this model has learned positions for "
                f"{self.config.max_sentences} only; tokenize with max_sentences={self.config.max_sentences}"
            )
        hidden_states = hidden_states + self.positions(
            torch.arange(hidden_states.shape[1], device=hidden_states.device)
        )
        if self.config.document_norm == "post":
            hidden_states = self.input_dropout(self.input_norm(hidden_states))
        return hidden_states

    def _padded_layers(self, hidden_states: Tensor, mask: Tensor) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Hidden states (documents, 1 + sentences, hidden) and attention weights after each layer.

        Args:
            mask: (documents, 1 + sentences), False where there is no sentence.
        """
        attention_mask = create_bidirectional_mask(self.config, hidden_states, mask)
        for layer in self.layers:
            hidden_states, weights = layer(hidden_states, attention_mask)
            hidden_states = hidden_states.masked_fill(~mask.unsqueeze(-1), 0)
            yield hidden_states, weights

    def _packed_layers(self, hidden_states: Tensor, mask: Tensor) -> Iterator[tuple[Tensor, None]]:
        """As `_padded_layers`, with the documents end to end in one row."""
        packed, arguments = hidden_states[mask].unsqueeze(0), packed_attention_arguments(mask.sum(dim=1))
        for layer in self.layers:
            packed, _ = layer(packed, None, **arguments)
            yield hidden_states.masked_scatter(mask.unsqueeze(-1), packed), None

    def pooling_weights(self, sentence_lengths: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Weights of the DBOS vector and of the sentences in the document embedding, which add up to 1, with the share
        of the first sentence: (documents, sentences) -> (documents, 1 + sentences)."""
        counts = sentence_lengths if self.config.document_pooling == "token_mean" else sentence_lengths > 0
        counts = counts.to(dtype) * int(self.config.document_pooling != "dbos")
        dbos = int(self.config.document_pooling in ("dbos", "mean_with_dbos"))
        counts = nn.functional.pad(counts, (1, 0), value=dbos)
        weights = counts / counts.sum(dim=1, keepdim=True)
        if not self.config.document_first_sentence:
            return weights
        first_sentence = (torch.arange(weights.shape[1], device=weights.device) == 1).to(dtype).expand_as(weights)
        return torch.lerp(weights, first_sentence, self.config.document_first_sentence)
