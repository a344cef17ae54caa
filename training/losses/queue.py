"""Contrast with vectors of earlier batches, which a momentum encoder made (MoCo; InfoXLM, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from hmde.common.numbers import PositiveFloat, PositiveInt, Share
from training.losses.batch import BatchVectors, Documents
from training.losses.candidates import HardNegatives
from training.losses.info_nce import info_nce


@dataclass
class Queue:
    """InfoNCE from anchors to the momentum encoder's documents of this batch and of earlier ones."""

    size: PositiveInt
    """Number of vectors of earlier batches."""

    momentum: Share = 0.9999
    """Share of its weights that the momentum encoder keeps at each step."""

    weight: PositiveFloat = 1.0
    """Weight of the loss in the sum."""

    hard_negatives: HardNegatives = "own"
    """Which hard negatives an anchor sees: its own, all of the batch, or none."""


def queue_losses(vectors: BatchVectors, options: Queue) -> dict[str, Tensor]:
    """The mean over anchors (`queue`). There is none for documents that the momentum encoder did not embed."""
    if vectors.key_documents is None:
        return {}
    keys = Documents(vectors.key_documents, vectors.batch)
    candidates = keys.candidates("positive", "negative", options.hard_negatives, vectors.queued)
    return {"queue": info_nce(vectors.documents.vectors["anchor"], candidates, vectors.temperature).mean()}
