"""What a loss of pretraining is: options, what it needs, and what it makes of a batch's vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from hmde.common.numbers import PositiveFloat
from training.losses.batch import BatchVectors


class Needs(NamedTuple):
    """What a loss reads beside the documents of a triple.

    Args:
        symmetric: a hard negative of the positive.
        queries: a query.
    """

    symmetric: bool = False
    queries: bool = False


@dataclass(kw_only=True)
class Loss:
    """A loss: its fields are options of the recipe, and it is called on the vectors of each batch."""

    weight: PositiveFloat = 1.0
    """Weight of the loss in the sum."""

    @property
    def needs(self) -> Needs:
        """What it reads beside documents."""
        return Needs()

    def __call__(self, vectors: BatchVectors) -> dict[str, Tensor]:
        """Its terms by name, each a mean over the triples of the batch."""
        raise NotImplementedError


def needs_of_all(losses: Sequence[Loss]) -> Needs:
    """What some losses need together.

    >>> needs_of_all([])
    Needs(symmetric=False, queries=False)
    """
    return Needs(*map(max, zip(Needs(), *(loss.needs for loss in losses))))
