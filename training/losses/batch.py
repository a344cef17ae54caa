"""The vectors of a batch of triples that the losses compare, on this process and on the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from training.losses.candidates import Candidates, HardNegatives
from training.losses.processes import rows_of_other_processes

if TYPE_CHECKING:
    from training.data.batches import Batch

Queued = tuple[Tensor, Tensor]  # vectors (rows, hidden) of earlier batches and their concepts (rows,)


@dataclass
class BatchVectors:
    """What the model made of a batch of triples.

    Args:
        embeddings: `documents` (documents of all roles, hidden) and, if asked for, `queries` and
            `queries_as_documents` (triples, hidden), the sentences of the documents, `sentences` (documents of all
            roles, sentences, hidden), and single sentences by either path, `sentence_queries` and
            `sentence_queries_as_documents` (sentences, hidden), see `Batch.sentence_index`.
        batch: the triples.
        temperature: what cosines are divided by (tau in equation 1).
        key_documents: (documents of all roles, hidden), by the momentum encoder, if there is a queue.
        queued: vectors of earlier batches, likewise.
        teacher: the teacher's vectors of all that is embedded, by the same names, if there is a teacher.
    """

    embeddings: dict[str, Tensor]
    batch: Batch
    temperature: float
    key_documents: Tensor | None = None
    queued: Queued | None = None
    teacher: dict[str, Tensor] = field(default_factory=dict)

    @cached_property
    def documents(self) -> Documents:
        return Documents(self.embeddings["documents"], self.batch)

    @property
    def queries(self) -> list[Tensor]:
        """(triples, hidden), float32, for each path by which queries are encoded."""
        return [vectors.float() for name, vectors in self.embeddings.items() if name.startswith("queries")]

    @property
    def sentence_queries(self) -> list[Tensor]:
        """(sentences, hidden), float32, for each path by which queries are encoded."""
        return [vectors.float() for name, vectors in self.embeddings.items() if name.startswith("sentence_queries")]

    @cached_property
    def sentences_by_role(self) -> dict[str, Tensor]:
        """(triples, sentences, hidden), float32, for each role, 0 where there is no sentence."""
        sentences = self.embeddings["sentences"].float()
        return dict(zip(self.batch.concepts, sentences.unflatten(0, (len(self.batch.concepts), -1))))

    def cut(self, size: int) -> BatchVectors:
        """The first `size` numbers of every vector, for a model whose vectors may be cut (Matryoshka; Kusupati et al.,
        2022)."""
        key_documents = None if self.key_documents is None else self.key_documents[..., :size]
        queued = None if self.queued is None else (self.queued[0][..., :size], self.queued[1])
        embeddings, teacher = (
            {name: vectors[..., :size] for name, vectors in by_name.items()}
            for by_name in (self.embeddings, self.teacher)
        )
        return BatchVectors(embeddings, self.batch, self.temperature, key_documents, queued, teacher)


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

    def candidates(
        self, positive: str, hard: str, hard_negatives: HardNegatives, queued: Queued | None = None
    ) -> Candidates:
        """The documents of the role `positive` of all triples, hard negatives of the role `hard`, the documents of
        other processes, and those of a queue."""
        roles = [positive, hard] if hard_negatives == "all" else [positive]
        others = [(self.other_vectors[role], self.other_concepts[role]) for role in roles]
        others += [queued] if queued is not None else []
        vectors, concepts = zip(*others)
        return Candidates(
            self.vectors[positive],
            self.vectors[hard],
            concepts=self.concepts["anchor"],
            negative_concepts=self.concepts[hard],
            hard_negatives=hard_negatives,
            others=(torch.cat(vectors), torch.cat(concepts)),
        )


def _from_other_processes(by_role: Tensor) -> Tensor:
    """(roles, triples, ...) -> (roles, triples of other processes, ...)."""
    return rows_of_other_processes(by_role.transpose(0, 1)).transpose(0, 1)
