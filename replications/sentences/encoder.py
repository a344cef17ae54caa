"""A sentence encoder in training: how it starts, how vectors are read from it, what of it is trained and saved."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from hmde.common.saved_models import model_type_of, opening
from modeling_hmde.encoders_hmde import longest_text
from modeling_hmde.inference_hmde import evaluating
from modeling_hmde.packing_hmde import padded_batches
from modeling_hmde.pooling_hmde import pool
from training.loop.cached_gradients import Chunk, Embeddings, Rows
from training.loop.options import LoopOptions

SentencePooling = Literal["cls", "mean"]

# Encoders whose first layer has what the others lack: ModernBERT's has no norm before it, T5's has the positions.
FIRST_LAYER_DIFFERS = ("modernbert", "t5", "mt5", "umt5")


class SentenceEncoder(nn.Module):
    """From rows to what the losses read, in one forward pass, as distributed training needs it. A subclass that adds a
    head has its own `embed`.

    Args:
        model: a transformer.
        pooling: how the vector of a sentence is read from its last hidden states.
    """

    def __init__(self, model: PreTrainedModel, pooling: SentencePooling) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling

    def forward(self, chunk: Chunk) -> Embeddings:
        """See `embed`."""
        embeddings = self.embed(chunk)
        if torch.is_grad_enabled():
            # Processes wait for the gradients of all weights, but not every row reaches a head. Where it does not, the
            # head gets a gradient of 0.
            lookup = self.model.get_input_embeddings().weight  # which every row reaches
            weights = [weight for weight in self.parameters() if weight.requires_grad and weight is not lookup]
            nothing = 0 * torch.stack([weight.flatten()[0] for weight in weights]).sum()
            embeddings = {name: vectors + nothing for name, vectors in embeddings.items()}
        return embeddings

    def embed(self, chunk: Chunk) -> Embeddings:
        """The vectors of the rows of each name, (rows, hidden)."""
        return {name: self.sentence_vectors(rows) for name, rows in chunk.items()}

    def sentence_vectors(self, rows: Rows) -> Tensor:
        """(rows, tokens) -> (rows, hidden)."""
        return self.pooled(self.hidden_states(rows), rows)

    def hidden_states(self, rows: Rows) -> Tensor:
        """(rows, tokens) -> (rows, tokens, hidden), of the last layer."""
        return self.model(input_ids=rows["input_ids"], attention_mask=rows["attention_mask"]).last_hidden_state

    def pooled(self, hidden_states: Tensor, rows: Rows) -> Tensor:
        """(rows, tokens, hidden) -> (rows, hidden)."""
        mask = rows["attention_mask"]
        return pool(self.pooling, hidden_states[mask.bool()], mask.sum(dim=1), self.model)

    def encode(
        self, sentences: list[str], tokenizer: PreTrainedTokenizerBase, max_length: int, max_tokens: int
    ) -> np.ndarray:
        """(sentences, hidden), float32, in the order of the sentences, without dropout.

        Args:
            max_tokens: to encode at once, with their padding.
        """
        device = next(self.parameters()).device
        rows = tokenizer(sentences, truncation=True, max_length=max_length, return_token_type_ids=False)
        vectors = np.empty((len(sentences), self.model.config.hidden_size), dtype=np.float32)
        with evaluating(self):
            for indices, batch in padded_batches(tokenizer, rows, max_tokens):
                vectors[indices] = self.sentence_vectors(dict(batch.to(device))).float().cpu()
        return vectors

    def save(self, folder: Path) -> None:
        """Write what AutoModel opens: the encoder, without a head."""
        self.model.save_pretrained(folder)


def load_encoder(name: str, architecture: dict[str, Any], max_length: int) -> PreTrainedModel:
    """An encoder to start from.

    Args:
        name: Hub name or folder.
        architecture: what is changed of its configuration.
        max_length: tokens of a row at most.

    Raises:
        ValueError: there is no such encoder, its configuration has no such field, or rows are longer than its
            positions.
    """
    model_type_of("sentence_encoder", name)
    with opening(name, "sentence_encoder"):
        config, unknown = AutoConfig.from_pretrained(name, return_unused_kwargs=True, **architecture)
    check_architecture(config, unknown, max_length)
    with opening(name, "sentence_encoder"):
        return AutoModel.from_pretrained(name, config=config, dtype=torch.float32)


def check_architecture(config: Any, unknown: Collection[str], max_length: int) -> None:
    """
    Raises:
        ValueError: the recipe names fields that the configuration lacks (`unknown`), or rows are longer than its
            positions.
    """
    if unknown:
        raise ValueError(f"architecture: a configuration of {config.model_type} has no field {', '.join(unknown)}")
    positions = longest_text(config)
    if positions is not None and max_length > positions:
        raise ValueError(f"max_length is {max_length}, but the encoder has {positions} positions; lower it")


def keep_layers(encoder: Any, layers: Sequence[int]) -> None:
    """Keep these layers of an encoder, counted from 0, and remove the others; an empty sequence keeps none. The
    encoder's configuration stays as it is.

    Raises:
        ValueError: the encoder has no such layer, one is named twice, or its layers are not in one list.
    """
    count = encoder.config.num_hidden_layers
    stacks = [part for part in encoder.modules() if isinstance(part, nn.ModuleList) and len(part) == count]
    if len(stacks) != 1:
        raise ValueError(f"the {count} layers of {type(encoder).__name__} are not in one list; keep them all")
    (stack,) = stacks
    if not all(0 <= layer < count for layer in layers):
        raise ValueError(f"layers is {layers}, but the encoder has {count} layers; name some from 0 to {count - 1}")
    if len({*layers}) < len(layers):
        raise ValueError(f"layers is {layers}, which names a layer twice; name each once")
    kept = [stack[layer] for layer in layers]
    del stack[:]
    stack.extend(kept)


def take_layers(encoder: Any, layers: Sequence[int]) -> None:
    """Keep these layers of an encoder, counted from 0, and describe them in its configuration.

    Raises:
        ValueError: the encoder has no such layers, or would lack a first one that differs from the others.
    """
    config = encoder.config
    if layers and 0 not in layers and config.model_type in FIRST_LAYER_DIFFERS:
        raise ValueError(f"layers is {layers}, but layer 0 of {config.model_type} differs from the others; keep it too")
    keep_layers(encoder, layers)
    config.num_hidden_layers = len(layers)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[layer] for layer in layers]


def prepare_encoder(model: PreTrainedModel, options: LoopOptions) -> None:
    """Freeze the pooler, which no loss reads, and set what saves memory and time."""
    if getattr(model, "pooler", None) is not None:
        cast(nn.Module, model.pooler).requires_grad_(False)
    if options.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    if options.compile:
        model.compile(dynamic=True)
