"""The losses of sentence encoders that compare the vectors of pairs, each with its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer

from hmde.common.fingerprints import fingerprint_of_model
from hmde.common.numbers import PositiveFloat
from hmde.common.saved_models import model_type_of, opening
from replications.sentences.batches import SentenceBatch
from replications.sentences.encoder import SentenceEncoder, SentencePooling
from training.loop.cached_gradients import embed_in_chunks
from training.loop.processes import rows_of_other_processes


class PairVectors:
    """What the encoder made of a batch of pairs.

    Args:
        embeddings: by name: `sentences` (2 * pairs, hidden), the first ones and then the second; and what else a loss
            reads.
        batch: the pairs.
    """

    def __init__(self, embeddings: dict[str, Tensor], batch: SentenceBatch) -> None:
        self.embeddings = embeddings
        self.batch = batch

    @cached_property
    def sides(self) -> tuple[Tensor, Tensor]:
        """The vectors of the first sentences and of the second, (pairs, hidden), float32."""
        first, second = self.embeddings["sentences"].float().chunk(2)
        return first, second

    @cached_property
    def other_sides(self) -> tuple[Tensor, Tensor]:
        """The same of other processes, (others, hidden), with gradients."""
        first, second = (rows_of_other_processes(side) for side in self.sides)
        return first, second


@dataclass(kw_only=True)
class LossOptions:
    """What every loss is told."""

    weight: PositiveFloat = 1.0
    """Weight of the loss in the sum."""


@dataclass(kw_only=True)
class Align(LossOptions):
    """Each sentence finds its translation among those of the batch (Mao et al., 2021, equation 5)."""


@dataclass(kw_only=True)
class Distillation(LossOptions):
    """Both sentences of a pair learn a teacher's vector of the first (Reimers and Gurevych, 2020, equation 1)."""

    teacher: str
    """Hub name or folder of the encoder whose vectors are learned."""

    pooling: SentencePooling = "mean"
    """The vector of a sentence in the teacher's last layer."""


@dataclass(kw_only=True)
class SentenceLosses:
    """The losses whose weighted sum is minimised. One that is null is left out."""

    align: Align | None = None
    """Translations are drawn together, and away from other sentences."""

    distillation: Distillation | None = None
    """A teacher's vectors are learned."""


def align(first: Tensor, second: Tensor, other_first: Tensor, other_second: Tensor) -> Tensor:
    """Each sentence seeks its translation among those of the batch, both ways, by inner product.

    Args:
        first, second: (pairs, hidden).
        other_first, other_second: (others, hidden), the sentences of other processes.

    Returns:
        (pairs,)
    """
    own = torch.arange(len(first), device=first.device)
    there = F.cross_entropy(first @ torch.cat([second, other_second]).T, own, reduction="none")
    return there + F.cross_entropy(second @ torch.cat([first, other_first]).T, own, reduction="none")


def distillation(first: Tensor, second: Tensor, teacher: Tensor) -> Tensor:
    """The mean of the squared differences of both sentences from the teacher's vector of the first.

    Args:
        first, second, teacher: (pairs, hidden).

    Returns:
        (pairs,)
    """
    return ((first - teacher) ** 2).mean(dim=1) + ((second - teacher) ** 2).mean(dim=1)


class Teacher:
    """An encoder whose vectors are learned. It stays as it is.

    Args:
        hidden_size: width of the student's vectors, which the teacher's must have too.
        max_tokens: to encode at once.

    Raises:
        ValueError: there is no such encoder, or its vectors have another width.
    """

    def __init__(self, options: Distillation, hidden_size: int, accelerator: Accelerator, max_tokens: int) -> None:
        model_type_of("teacher", options.teacher)
        with opening(options.teacher, "teacher"):
            self.tokenizer = AutoTokenizer.from_pretrained(options.teacher)
            model = AutoModel.from_pretrained(options.teacher, dtype=torch.float32)
        if model.config.hidden_size != hidden_size:
            raise ValueError(
                f"vectors of the teacher {options.teacher} have {model.config.hidden_size} values and those of the "
                f"student {hidden_size}; give the student a hidden_size of {model.config.hidden_size}"
            )
        self.fingerprint = fingerprint_of_model(options.teacher)
        self.accelerator = accelerator
        self.max_tokens = max_tokens
        self.encoder = SentenceEncoder(model.requires_grad_(False).to(accelerator.device).eval(), options.pooling)

    def vectors(self, batch: SentenceBatch) -> Tensor:
        """(pairs, hidden), float32, those of the first sentences, without gradient."""
        with self.accelerator.autocast():
            return embed_in_chunks(self.encoder, batch.other_rows, self.max_tokens)["teacher"].float()


LossFunction = Callable[[PairVectors, Any], Tensor]


def student_losses(teacher: Teacher | None) -> dict[str, LossFunction]:
    """The functions of the losses, by name, each a mean over pairs.

    Args:
        teacher: if there is a loss for its vectors.
    """

    def align_loss(vectors: PairVectors, options: Align) -> Tensor:
        return align(*vectors.sides, *vectors.other_sides).mean()

    def distillation_loss(vectors: PairVectors, options: Distillation) -> Tensor:
        assert teacher is not None
        return distillation(*vectors.sides, teacher.vectors(vectors.batch)).mean()

    return {"align": align_loss, "distillation": distillation_loss}


def chosen_losses(losses: Any) -> dict[str, Any]:
    """The options of the losses that are not null, by name.

    Args:
        losses: a dataclass with a field for each loss.

    Raises:
        ValueError: all are null.
    """
    chosen = {name: options for name, options in vars(losses).items() if options is not None}
    if not chosen:
        raise ValueError(f"losses has no loss; name some of {', '.join(vars(losses))}")
    return chosen


def weighted_losses(
    chosen: Mapping[str, Any], functions: Mapping[str, LossFunction], vectors: PairVectors
) -> dict[str, Tensor]:
    """The losses of a batch by name, each a mean times its weight. Their sum is minimised."""
    return {f"{name}_loss": options.weight * functions[name](vectors, options) for name, options in chosen.items()}
