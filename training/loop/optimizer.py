"""The trained weights of a model, as an optimizer takes them."""

from __future__ import annotations

from typing import Any

from torch import nn


def groups_by_decay(part: nn.Module, rate: float, weight_decay: float, **options: Any) -> list[dict[str, Any]]:
    """The trained weights of a part of a model, as an optimizer takes them: weight decay on matrices only.

    Args:
        rate: the learning rate.
        options: of the optimizer, for all these weights.
    """
    groups: dict[float, list[nn.Parameter]] = {}
    for weight in part.parameters():
        if weight.requires_grad:
            groups.setdefault(weight_decay if weight.ndim > 1 else 0.0, []).append(weight)
    return [{"params": weights, "lr": rate, "weight_decay": decay, **options} for decay, weights in groups.items()]
