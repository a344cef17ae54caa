"""The vectors of a batch of triples that the losses compare, on this process and on the others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from training.data.kinds import DOCUMENTS, Kind
from training.loop.processes import rows_of_other_processes
from training.losses.candidates import Candidates, HardNegatives

if TYPE_CHECKING:
    from training.data.batches import Batch


@dataclass
class BatchVectors:
    """What the model made of a batch of triples.

    Args:
        embeddings: by kind: documents of all roles (documents, hidden) and, if asked for, queries (triples, hidden) by
            either path.
        batch: the triples.
        temperature: what cosines are divided by (tau in equation 1).
    """

    embeddings: dict[Kind, Tensor]
    batch: Batch
    temperature: float

    @cached_property
    def documents(self) -> Documents:
        return Documents(self.embeddings[DOCUMENTS], self.batch)

    @property
    def queries(self) -> list[Tensor]:
        """(triples, hidden), float32, for each path by which queries are encoded."""
        return [vectors.float() for kind, vectors in self.embeddings.items() if kind.text == "queries"]

    def cut(self, size: int) -> BatchVectors:
        """The first `size` numbers of every vector, for a model whose vectors may be cut (Matryoshka; Kusupati et al.,
        2022)."""
        embeddings = {kind: vectors[:, :size] for kind, vectors in self.embeddings.items()}
        return BatchVectors(embeddings, self.batch, self.temperature)


class Documents:
    """The documents of a batch by role. Those of other processes carry gradients too.

    Args:
        vectors: (documents of all roles, hidden).
        batch: what they are.
    """

    def __init__(self, vectors: Tensor, batch: Batch) -> None:
        by_role = vectors.float().unflatten(0, (len(batch.concepts), -1))  # (roles, triples, hidden)
        concepts = torch.stack(list(batch.concepts.values()))  # (roles, triples)
        self.vectors = dict(zip(batch.concepts, by_role))
        self.concepts = batch.concepts
        self.other_vectors = dict(zip(batch.concepts, _from_other_processes(by_role)))
        self.other_concepts = dict(zip(batch.concepts, _from_other_processes(concepts)))

    def candidates(self, positive: str, hard: str, hard_negatives: HardNegatives) -> Candidates:
        """The documents of the role `positive` of all triples, hard negatives of the role `hard`, and the documents of
        other processes."""
        roles = [positive, hard] if hard_negatives == "all" else [positive]
        return Candidates(
            self.vectors[positive],
            self.vectors[hard],
            concepts=self.concepts["anchor"],
            negative_concepts=self.concepts[hard],
            hard_negatives=hard_negatives,
            others=(
                torch.cat([self.other_vectors[role] for role in roles]),
                torch.cat([self.other_concepts[role] for role in roles]),
            ),
        )


def _from_other_processes(by_role: Tensor) -> Tensor:
    """(roles, triples, ...) -> (roles, triples of other processes, ...)."""
    return rows_of_other_processes(by_role.transpose(0, 1)).transpose(0, 1)
