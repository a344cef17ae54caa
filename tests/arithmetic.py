"""Arithmetic in plain Python, against which losses are checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

PAIRS, HIDDEN, VOCABULARY = 4, 6, 9


def vectors(seed: int, rows: int = PAIRS, columns: int = HIDDEN) -> Tensor:
    """Random ones, float64."""
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inner(one: Iterable[Tensor], other: Iterable[Tensor]) -> float:
    return sum(float(a) * float(b) for a, b in zip(one, other))


def cosine(one: Tensor, other: Tensor) -> float:
    return inner(one, other) / math.sqrt(inner(one, one) * inner(other, other))


def softmax(scores: Sequence[float]) -> list[float]:
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]
