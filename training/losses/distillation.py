"""A student learns the vectors of its teacher (Reimers and Gurevych, 2020, equation 1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hmde.common.fingerprints import fingerprint_of_model
from training.loop.processes import mean_of_all_processes, rows_of_all_processes
from training.losses.batch import BatchVectors
from training.losses.candidates import EPSILON
from training.losses.loss import Loss, Needs, Start
from training.losses.teacher import load_teacher


def distillation(vectors: Tensor, teacher: Tensor) -> Tensor:
    """The mean squared distance to the teacher's vectors, divided by the teacher vectors' variance, so that vectors of
    all kinds and lengths count alike; 1.0 equals predicting their mean. It is 0 where that variance is 0.

    Args:
        vectors, teacher: (documents, hidden), or of their sentences (documents, sentences, hidden), 0 where there is
            none. The teacher's are float32, and so are all sums.
    """
    is_vector = teacher.any(dim=-1)
    distance = mean_of_all_processes((vectors[is_vector] - teacher[is_vector]).square().sum(dim=1))
    variance = variance_of_all_processes(teacher)
    return distance * (variance > 0) / (variance + EPSILON)


def variance_of_all_processes(teacher: Tensor) -> Tensor:
    """The mean squared distance of a teacher's vectors, of all processes, to their mean; 0 where they differ by no more
    than rounding does. Arguments as in `distillation`."""
    vectors = teacher[teacher.any(dim=-1)]
    total, count = vectors.sum(dim=0, keepdim=True), vectors.new_tensor([[len(vectors)]])
    mean = rows_of_all_processes(total).sum(dim=0) / rows_of_all_processes(count).sum()
    variance = mean_of_all_processes((vectors - mean).square().sum(dim=1))
    return variance * (variance > EPSILON**2 * mean.square().sum())


@dataclass(kw_only=True)
class Distillation(Loss):
    """Learn a teacher's vectors of documents, their sentences and queries."""

    teacher: str
    """Hub name or folder of an HMDE with the same tokens and the same width of vectors."""

    @property
    def needs(self) -> Needs:
        return Needs(queries=True, sentences=True)

    def begin(self, start: Start) -> dict[str, str]:
        self.vectors_of_teacher = load_teacher(self.teacher, start)
        return {"files of the teacher": fingerprint_of_model(self.teacher)}

    def add_vectors(self, vectors: BatchVectors) -> None:
        vectors.teacher = self.vectors_of_teacher(vectors.batch.rows)

    def __call__(self, vectors: BatchVectors) -> dict[str, Tensor]:
        """The mean over all kinds of vectors (`distillation`), except those of which all the teacher's are the same."""
        losses = [distillation(student, vectors.teacher[name]) for name, student in vectors.embeddings.items()]
        variances = [variance_of_all_processes(vectors.teacher[name]) for name in vectors.embeddings]
        num_counted = (torch.stack(variances) > 0).sum()
        return {"distillation": torch.stack(losses).sum() / num_counted.clamp(min=1)}
