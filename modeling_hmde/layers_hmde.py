"""The class of an encoder, and its layers up to one."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import AutoModel, AutoModelForTextEncoding, PreTrainedModel

from .encoders_hmde import encoder_family


def auto_class(sentence_config: Any) -> Any:
    """The Auto class that opens a sentence encoder, without a decoder."""
    return AutoModelForTextEncoding if encoder_family(sentence_config).has_decoder else AutoModel


def cut_above_layer(encoder: PreTrainedModel, layer: int) -> None:
    """Remove the layers of a sentence encoder above one, counted from 1, and the norm behind the last. Its last hidden
    state is then what the whole encoder has as `hidden_states[layer]`."""
    count = encoder.config.num_hidden_layers
    if layer < count and hasattr(encoder, "final_norm"):  # ModernBERT's
        encoder.final_norm = nn.Identity()
    (layers,) = (part for part in encoder.modules() if isinstance(part, nn.ModuleList) and len(part) == count)
    del layers[layer:]
