"""What a loss of pretraining is: options, what it needs, what it makes of a batch's vectors, and a state of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from hmde.common.numbers import PositiveFloat
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from training.losses.batch import BatchVectors


class Needs(NamedTuple):
    """What a loss reads beside the documents of a triple.

    Args:
        symmetric: a hard negative of the positive.
        queries: a query.
        sentences: the vectors of the documents' sentences.
        sentence_queries: how many sentences of each anchor and of each positive, read by themselves as queries.
    """

    symmetric: bool = False
    queries: bool = False
    sentences: bool = False
    sentence_queries: int = 0


class Start(NamedTuple):
    """What a run starts with.

    Args:
        folder: of the triples; what is kept for later runs goes beside it.
        max_tokens: to encode at once.
    """

    model: HMDEForDocumentEmbedding
    tokenizer: HMDETokenizer
    folder: Path
    max_tokens: int
    device: torch.device


@dataclass(kw_only=True)
class Loss:
    """A loss: its fields are options of the recipe, and it is called on the vectors of each batch. One that carries a
    state from step to step is `training.loop.loop.Stateful` too."""

    weight: PositiveFloat = 1.0
    """Weight of the loss in the sum."""

    @property
    def needs(self) -> Needs:
        """What it reads beside documents."""
        return Needs()

    def begin(self, start: Start) -> dict[str, str]:
        """Load what vectors are compared with.

        Returns:
            Fingerprints of it by name, which must be the same when a run is resumed.
        """
        return {}

    def add_vectors(self, vectors: BatchVectors) -> None:
        """Put what vectors are compared with beside them, before they are cut to smaller sizes."""

    def __call__(self, vectors: BatchVectors) -> dict[str, Tensor]:
        """Its terms by name, each a mean over the triples of the batch."""
        raise NotImplementedError


def needs_of_all(losses: Sequence[Loss]) -> Needs:
    """What some losses need together.

    >>> needs_of_all([])
    Needs(symmetric=False, queries=False, sentences=False, sentence_queries=0)
    """
    return Needs(*map(max, zip(Needs(), *(loss.needs for loss in losses))))
