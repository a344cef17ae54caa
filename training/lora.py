"""LoRA (Hu et al., 2022): the matrices of the sentence encoder stay as they are. To each, a product of two narrow
matrices is added, and only these are trained. So large encoders can be trained on one GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hmde.common.numbers import PositiveInt, Share

if TYPE_CHECKING:  # they take seconds, which --help need not wait for
    from torch import Tensor, nn
    from transformers import PreTrainedModel


@dataclass
class Lora:
    """The adapter of the sentence encoder: beside each of its linear layers, and nowhere else."""

    rank: PositiveInt = 16
    """Width of the narrow matrices."""

    alpha: PositiveInt = 32
    """Their product is added `alpha / rank` times."""

    dropout: Share = 0.0
    """Dropout before the narrow matrices."""


def add_lora(encoder: PreTrainedModel, lora: Lora) -> None:
    """Put an adapter into an encoder, whose own weights are trained no more. It starts as 0 and changes nothing yet."""
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules="all-linear")
    inject_adapter_in_model(config, encoder)


def merged_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights of the model that computes the same without an adapter, by name. The model stays as it is."""
    weights = {
        name.replace(".base_layer.", "."): weight for name, weight in model.state_dict().items() if ".lora_" not in name
    }
    for name, layer in model.named_modules():
        if hasattr(layer, "get_delta_weight"):  # of peft
            weights[f"{name}.weight"] = weights[f"{name}.weight"] + layer.get_delta_weight("default").detach()
    return weights
