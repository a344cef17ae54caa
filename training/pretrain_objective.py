"""From the embeddings of a batch to the losses a pretraining recipe asks for, over all processes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from training.cached_gradients import Embeddings
from training.data import Batch
from training.distributed import mean_of_all_processes, rows_of_other_processes
from training.momentum import DocumentQueue
from training.objectives import distance_constraint, info_nce

if TYPE_CHECKING:
    from training.pretrain import PretrainRecipe

AFTER_NAN = (
    "The last checkpoint is from before it; look at these documents, lower the learning rate or raise the precision, "
    "and go on with --resume true"
)


def objective(
    embeddings: Embeddings,
    batch: Batch,
    recipe: PretrainRecipe,
    temperature: float | Tensor,
    keys: Tensor | None = None,
    queue: DocumentQueue | None = None,
) -> dict[str, Tensor]:
    """The weighted losses of a batch, each a mean over its triples; their sum is what is minimised.

    Each anchor of this process stands against the candidates of all processes, which carry gradients.

    Args:
        temperature: what cosines are divided by.
        keys: (documents, hidden), the momentum encoder's embeddings of the batch's documents.
        queue: those of earlier batches.
    """
    assert embeddings.documents is not None
    # By role: anchors, positives, negatives and, if symmetric, negatives of the positives.
    concepts = torch.stack(
        [batch.concepts, batch.concepts, batch.negative_concepts, batch.positive_negative_concepts]
    )  # (roles, triples)
    documents = embeddings.documents.float().unflatten(0, (-1, len(batch.names)))  # (roles, triples, hidden)
    other_concepts = elsewhere(concepts)

    def contrast(
        loss: Callable[..., Tensor],
        sources: Tensor,
        candidates: Tensor,
        target: int,
        hard: int,
        queued: DocumentQueue | None = None,
    ) -> Tensor:
        """The mean loss of `sources` (triples, hidden) against the roles `target` and `hard` of `candidates`."""
        others = elsewhere(candidates)
        roles = [target, hard] if recipe.hard_negatives == "all" else [target]
        return loss(
            sources,
            candidates[target],
            candidates[hard],
            concepts=batch.concepts,
            negative_concepts=concepts[hard],
            hard_negatives=recipe.hard_negatives,
            others=torch.cat([*others[roles], *([queued.vectors] if queued else [])]),
            other_concepts=torch.cat([*other_concepts[roles], *([queued.concepts] if queued else [])]),
        ).mean()

    by_cosine = functools.partial(info_nce, temperature=temperature)
    of_documents = by_cosine
    if recipe.document_objective == "distance_constraint":
        of_documents = functools.partial(distance_constraint, mean=mean_of_all_processes)
    losses = {"document_loss": contrast(of_documents, documents[0], documents, 1, 2)}
    if recipe.symmetric:
        losses["reverse_loss"] = contrast(of_documents, documents[1], documents, 0, 3)
    if embeddings.queries is not None:
        losses["query_loss"] = recipe.query_weight * contrast(by_cosine, embeddings.queries.float(), documents, 1, 2)
    if keys is not None:
        key_roles = keys.float().unflatten(0, (-1, len(batch.names)))
        losses["queue_loss"] = contrast(by_cosine, documents[0], key_roles, 1, 2, queue)
    return losses


def elsewhere(roles: Tensor) -> Tensor:
    """The documents of other processes: (roles, triples, ...) -> (roles, triples of other processes, ...)."""
    return rows_of_other_processes(roles.transpose(0, 1)).transpose(0, 1)


def checked_objective(
    embeddings: Embeddings,
    batch: Batch,
    recipe: PretrainRecipe,
    temperature: float,
    keys: Tensor | None,
    queue: DocumentQueue,
) -> dict[str, Tensor]:
    """The objective, at the learned temperature if there is one.

    Raises:
        FloatingPointError: a loss is not finite; names the triples.
    """
    learned = temperature if embeddings.temperature is None else embeddings.temperature
    losses = objective(embeddings, batch, recipe, learned, keys, queue)
    not_finite = [f"{name} is {loss.item()}" for name, loss in losses.items() if not loss.isfinite()]
    if not_finite:
        raise FloatingPointError(f"{', '.join(not_finite)} in {described(batch, embeddings)}. {AFTER_NAN}")
    return losses


def described(batch: Batch, embeddings: Embeddings) -> str:
    """The triples of a batch with an embedding that is not finite; all triples where every embedding is."""
    assert embeddings.documents is not None
    bad = ~embeddings.documents.isfinite().all(dim=1).view(-1, len(batch.names)).all(dim=0)
    if embeddings.queries is not None:
        bad |= ~embeddings.queries.isfinite().all(dim=1)
    names = [name for name, is_bad in zip(batch.names, bad.tolist()) if is_bad]
    if names:
        return f"a batch in which the embeddings of {'; '.join(names)} are not finite"
    return f"the batch of {'; '.join(batch.names)}"


def check_grad_norm(grad_norm: Tensor | None, batches: list[Batch], recipe: PretrainRecipe) -> None:
    """Raises:
    FloatingPointError: the gradient is not finite. With fp16 that is for the gradient scaler to see to.
    """
    if grad_norm is not None and recipe.mixed_precision != "fp16" and not math.isfinite(float(grad_norm)):
        names = "; ".join(name for batch in batches for name in batch.names)
        raise FloatingPointError(f"the gradient's norm is {float(grad_norm)} after the batch of {names}. {AFTER_NAN}")
