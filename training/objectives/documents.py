"""From the embeddings of a batch of triples to the losses that a pretraining recipe asks for, over all processes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from training.objectives.collectives import mean_of_all_processes, rows_of_all_processes, rows_of_other_processes
from training.objectives.contrast import EPSILON, distance_constraint, info_nce
from training.recipes import HardNegatives, PretrainRecipe

if TYPE_CHECKING:
    from training.data.batches import Batch

Queued = tuple[Tensor, Tensor]  # vectors (rows, hidden) of earlier batches and their concepts (rows,)


def document_losses(
    embeddings: dict[str, Tensor],
    batch: Batch,
    recipe: PretrainRecipe,
    temperature: float,
    keys: Tensor | None = None,
    queued: Queued | None = None,
    of_teacher: dict[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """The weighted losses of a batch, each a mean over its triples. Their sum is minimised.

    Each anchor of this process stands against the candidates of all processes, which carry gradients.

    Args:
        embeddings: `documents` (documents of all roles, hidden) and, if asked for, `queries` and
            `queries_as_documents` (triples, hidden), and the sentences of the documents, `sentences` (documents of all
            roles, sentences, hidden).
        temperature: what cosines are divided by.
        keys: (documents of all roles, hidden), the momentum encoder's embeddings of the batch, for the queue's loss.
        queued: those of earlier batches.
        of_teacher: its vectors of all that is embedded, by the same names.
    """
    by_cosine = functools.partial(info_nce, temperature=temperature)
    of_documents: Callable[..., Tensor] = by_cosine
    if recipe.document_objective == "distance_constraint":
        of_documents = functools.partial(distance_constraint, mean=mean_of_all_processes)
    documents = Candidates(embeddings["documents"], batch, recipe.hard_negatives)
    anchors, positives = documents.vectors["anchor"], documents.vectors["positive"]

    losses: dict[str, Tensor] = {}
    if recipe.document_weight > 0:
        losses["document_loss"] = documents.contrast(of_documents, anchors, "positive", "negative")
        if recipe.symmetric:
            losses["reverse_loss"] = documents.contrast(of_documents, positives, "anchor", "positive_negative")
        losses = {name: recipe.document_weight * loss for name, loss in losses.items()}
    queries = [vectors.float() for name, vectors in embeddings.items() if name.startswith("queries")]
    if queries and recipe.query_weight > 0:
        of_paths = [documents.contrast(by_cosine, vectors, "positive", "negative") for vectors in queries]
        losses["query_loss"] = recipe.query_weight * torch.stack(of_paths).mean()
    if keys is not None:
        key_documents = Candidates(keys, batch, recipe.hard_negatives)
        losses["queue_loss"] = key_documents.contrast(by_cosine, anchors, "positive", "negative", queued)
    if of_teacher is not None:
        of_kinds = [distillation(vectors, of_teacher[name]) for name, vectors in embeddings.items()]
        losses["distillation_loss"] = recipe.distillation_weight * torch.stack(of_kinds).mean()
    return losses


def distillation(vectors: Tensor, teacher: Tensor) -> Tensor:
    """A teacher's vectors are learned: the mean squared distance from them (Reimers and Gurevych, 2020, equation 1),
    over their own from their mean, so that vectors of all kinds and lengths count alike: 1 where their mean is all that
    is known.

    Args:
        vectors, teacher: (documents, hidden), or of their sentences (documents, sentences, hidden), 0 where there is
            none.
    """
    is_vector = teacher.any(dim=-1)
    vectors, teacher = vectors[is_vector].float(), teacher[is_vector].float()
    total, count = teacher.sum(dim=0, keepdim=True), teacher.new_tensor([[len(teacher)]])
    mean = rows_of_all_processes(total).sum(dim=0) / rows_of_all_processes(count).sum()
    spread = mean_of_all_processes((teacher - mean).square().sum(dim=1))
    return mean_of_all_processes((vectors - teacher).square().sum(dim=1)) / (spread + EPSILON)


class Candidates:
    """The documents of a batch by role, on this process and on the others.

    Args:
        documents: (documents of all roles, hidden).
        batch: what they are.
        hard_negatives: which hard negatives a source sees.
    """

    def __init__(self, documents: Tensor, batch: Batch, hard_negatives: HardNegatives) -> None:
        by_role = documents.float().unflatten(0, (len(batch.concepts), -1))  # (roles, triples, hidden)
        concepts = torch.stack(list(batch.concepts.values()))  # (roles, triples)
        self.vectors = dict(zip(batch.concepts, by_role))
        self.concepts = batch.concepts
        self.vectors_of_others = dict(zip(batch.concepts, of_other_processes(by_role)))
        self.concepts_of_others = dict(zip(batch.concepts, of_other_processes(concepts)))
        self.hard_negatives = hard_negatives

    def contrast(
        self, loss: Callable[..., Tensor], sources: Tensor, target: str, hard: str, queued: Queued | None = None
    ) -> Tensor:
        """The mean loss of `sources` (triples, hidden). Each seeks its document of the role `target` among those of all
        triples, hard negatives of the role `hard`, the documents of other processes, and those of a queue."""
        roles = [target, hard] if self.hard_negatives == "all" else [target]
        others = [(self.vectors_of_others[role], self.concepts_of_others[role]) for role in roles]
        others += [queued] if queued is not None else []
        vectors, concepts = zip(*others)
        return loss(
            sources,
            self.vectors[target],
            self.vectors[hard],
            concepts=self.concepts["anchor"],
            negative_concepts=self.concepts[hard],
            hard_negatives=self.hard_negatives,
            others=torch.cat(vectors),
            other_concepts=torch.cat(concepts),
        ).mean()


def of_other_processes(by_role: Tensor) -> Tensor:
    """(roles, triples, ...) -> (roles, triples of other processes, ...)."""
    return rows_of_other_processes(by_role.transpose(0, 1)).transpose(0, 1)
