"""The losses of pretraining: one file each, with its options and its function; `LOSSES` collects them.

A new loss is a file like the others and a line in `LOSSES`. It becomes an option of the recipe, `losses.<name>`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from training.losses.batch import BatchVectors
from training.losses.distance_constraint import DistanceConstraint, distance_constraint_losses
from training.losses.distillation import Distillation, distillation_losses
from training.losses.info_nce import InfoNCE, info_nce_losses
from training.losses.queries import Queries, query_losses
from training.losses.queue import Queue, queue_losses


@dataclass
class Losses:
    """The losses whose weighted sum is minimised. One that is null is left out."""

    info_nce: InfoNCE | None = None
    """Documents of one concept are drawn together (paper, equation 1)."""

    distance_constraint: DistanceConstraint | None = None
    """The same by distances and a margin (T-MDE)."""

    queries: Queries | None = None
    """A query is drawn to the document that it seeks."""

    queue: Queue | None = None
    """Contrast with vectors of earlier batches (InfoXLM)."""

    distillation: Distillation | None = None
    """A teacher's vectors are learned."""

    @property
    def symmetric(self) -> bool:
        """Whether a positive needs a hard negative of its own."""
        return any(loss is not None and loss.symmetric for loss in (self.info_nce, self.distance_constraint))

    @property
    def read_queries(self) -> bool:
        """Whether a query is needed beside the documents."""
        return self.queries is not None or self.distillation is not None


LOSSES: dict[str, Callable[[BatchVectors, Any], dict[str, Tensor]]] = {
    "info_nce": info_nce_losses,
    "distance_constraint": distance_constraint_losses,
    "queries": query_losses,
    "queue": queue_losses,
    "distillation": distillation_losses,
}


def weighted_losses(vectors: BatchVectors, losses: Losses) -> dict[str, Tensor]:
    """The losses of a batch by name, each a mean over its triples times its weight. Their sum is minimised.

    Each anchor of this process stands against the candidates of all processes, which carry gradients.
    """
    weighted: dict[str, Tensor] = {}
    for field in fields(losses):
        options = getattr(losses, field.name)
        if options is not None:
            terms = LOSSES[field.name](vectors, options)
            weighted |= {f"{name}_loss": options.weight * term for name, term in terms.items()}
    return weighted
