"""The class of an encoder, and the choice of its layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from transformers import AutoModel, AutoModelForTextEncoding, PreTrainedModel

from .encoders_hmde import encoder_family


def auto_class(sentence_config: Any) -> Any:
    """The Auto class that opens a sentence encoder, without a decoder."""
    return AutoModelForTextEncoding if encoder_family(sentence_config).has_decoder else AutoModel


def keep_layers(encoder: PreTrainedModel, layers: Sequence[int]) -> None:
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


def cut_above_layer(encoder: PreTrainedModel, layer: int) -> None:
    """Remove the layers of a sentence encoder above one, counted from 1, and the norm behind the last. Its last hidden
    state is then what the whole encoder has as `hidden_states[layer]`."""
    if layer < encoder.config.num_hidden_layers and hasattr(encoder, "final_norm"):  # ModernBERT's
        encoder.final_norm = nn.Identity()
    keep_layers(encoder, range(layer))
