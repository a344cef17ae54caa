"""The losses of pretraining, one file each; `Losses` collects them.

A new loss is a file like the others, a subclass of `Loss`, and a field of `Losses`: an option of the recipe,
`losses.<name>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from training.losses.batch import BatchVectors
from training.losses.info_nce import InfoNCE
from training.losses.loss import Loss, Needs, needs_of_all
from training.losses.queries import Queries

__all__ = ["InfoNCE", "Loss", "Losses", "Needs", "Queries"]


@dataclass
class Losses:
    """The losses whose weighted sum is minimised. One that is null is left out."""

    info_nce: InfoNCE | None = None
    """Documents of one concept are drawn together (paper, equation 1)."""

    queries: Queries | None = None
    """A query is drawn to the document that it seeks."""

    @property
    def chosen(self) -> list[Loss]:
        """Those that are not null."""
        return [loss for loss in vars(self).values() if loss is not None]


def check_losses(losses: Sequence[Loss]) -> Needs:
    """What the losses need together.

    Raises:
        ValueError: there is none.
    """
    if not losses:
        raise ValueError("losses has none, so that nothing is learned; give one, such as losses.info_nce.weight 1")
    return needs_of_all(losses)


def weighted_losses(vectors: BatchVectors, losses: Sequence[Loss], sizes: Sequence[int] = ()) -> dict[str, Tensor]:
    """The losses of a batch by name, each a mean over its triples times its weight. Their sum is minimised.

    Each anchor of this process stands against the candidates of all processes, which carry gradients.

    Args:
        sizes: each loss is the mean over whole vectors and over vectors that are cut to these sizes (Matryoshka).
    """
    weighted: dict[str, Tensor] = {}
    for sized in (vectors, *map(vectors.cut, sizes)):
        for loss in losses:
            for term, value in loss(sized).items():
                weighted[f"{term}_loss"] = weighted.get(f"{term}_loss", 0) + loss.weight * value / (1 + len(sizes))
    return weighted
