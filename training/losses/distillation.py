"""A student learns the vectors of its teacher (Reimers and Gurevych, 2020, equation 1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from common.numbers import PositiveFloat
from training.losses.batch import BatchVectors
from training.losses.candidates import EPSILON
from training.losses.processes import mean_of_all_processes, rows_of_all_processes


@dataclass
class Distillation:
    """Learn a teacher's vectors of documents, their sentences and queries."""

    teacher: str
    """Hub name or folder of an HMDE with the same tokens and the same width of vectors."""

    weight: PositiveFloat = 1.0
    """Weight of the loss in the sum."""


def distillation(vectors: Tensor, teacher: Tensor) -> Tensor:
    """The mean squared distance to the teacher's vectors, divided by the teacher vectors' variance, so that vectors of
    all kinds and lengths count alike; 1.0 equals predicting their mean.

    Args:
        vectors, teacher: (documents, hidden), or of their sentences (documents, sentences, hidden), 0 where there is
            none. The teacher's are float32, and so are all sums.
    """
    is_vector = teacher.any(dim=-1)
    vectors, teacher = vectors[is_vector], teacher[is_vector]
    total, count = teacher.sum(dim=0, keepdim=True), teacher.new_tensor([[len(teacher)]])
    mean = rows_of_all_processes(total).sum(dim=0) / rows_of_all_processes(count).sum()
    variance = mean_of_all_processes((teacher - mean).square().sum(dim=1))
    return mean_of_all_processes((vectors - teacher).square().sum(dim=1)) / (variance + EPSILON)


def distillation_losses(vectors: BatchVectors, options: Distillation) -> dict[str, Tensor]:
    """The mean over all kinds of vectors (`distillation`)."""
    kinds = [distillation(student, vectors.teacher[name]) for name, student in vectors.embeddings.items()]
    return {"distillation": torch.stack(kinds).mean()}
