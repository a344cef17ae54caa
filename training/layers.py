"""An encoder that keeps some of its layers, as a light student does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modeling_hmde.layers_hmde import keep_layers

# Encoders whose first layer has what the others lack: ModernBERT's has no norm before it, T5's has the positions.
FIRST_LAYER_DIFFERS = ("modernbert", "t5", "mt5", "umt5")


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
