"""The losses of pretraining: one file each, with its options and its function; `LOSSES` collects them.

A new loss is a file like the others and a line in `LOSSES`. It becomes an option of the recipe, `losses.<name>`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from training.losses.batch import BatchVectors
from training.losses.distance_constraint import DistanceConstraint, distance_constraint_losses
from training.losses.distillation import Distillation, distillation_losses
from training.losses.info_nce import InfoNCE, info_nce_losses
from training.losses.late_interaction import LateInteraction, late_interaction_losses
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

    late_interaction: LateInteraction | None = None
    """A query is drawn to the document that it seeks by their vectors and its best sentence; sentences keep apart."""

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
        return any(loss is not None for loss in (self.queries, self.late_interaction, self.distillation))

    @property
    def read_sentences(self) -> bool:
        """Whether the vectors of the documents' sentences are needed."""
        return self.late_interaction is not None or self.distillation is not None


LOSSES: dict[str, Callable[[BatchVectors, Any], dict[str, Tensor]]] = {
    "info_nce": info_nce_losses,
    "distance_constraint": distance_constraint_losses,
    "queries": query_losses,
    "late_interaction": late_interaction_losses,
    "queue": queue_losses,
    "distillation": distillation_losses,
}


def weighted_losses(vectors: BatchVectors, losses: Losses, sizes: Sequence[int] = ()) -> dict[str, Tensor]:
    """The losses of a batch by name, each a mean over its triples times its weight. Their sum is minimised.

    Each anchor of this process stands against the candidates of all processes, which carry gradients.

    Args:
        sizes: each loss is the mean over whole vectors and over vectors that are cut to these sizes (Matryoshka).
    """
    weighted: dict[str, Tensor] = {}
    for sized in (vectors, *map(vectors.cut, sizes)):
        for name, compute in LOSSES.items():
            options = getattr(losses, name)
            terms = compute(sized, options) if options is not None else {}
            for term, loss in terms.items():
                weighted[f"{term}_loss"] = weighted.get(f"{term}_loss", 0) + options.weight * loss / (1 + len(sizes))
    return weighted
