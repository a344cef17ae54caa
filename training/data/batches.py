"""Batches of examples, tokenized, step by step, from any step on."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from modeling_hmde import HMDETokenizer
from training.data.sampler import batches_of_epoch
from training.data.sentence_vectors import SentenceVectors
from training.data.triples import CONCEPT_OF, LANGUAGE_OF
from training.recipes import PretrainRecipe, PretrainSentencesRecipe, QueryPath


class Batch(NamedTuple):
    """Triples ready for the model.

    Args:
        rows: by name: `documents`, all of one role after all of another, in the order of `concepts`; and, if there is a
            loss for them, `queries`, `queries_as_documents` or both, for the two paths of a query. Each has input_ids
            and attention_mask, (rows, tokens), or see `SentenceVectors`.
        concepts: by role, (triples,), int64.
        names: (triples,), for messages.
    """

    rows: dict[str, dict[str, Tensor]]
    concepts: dict[str, Tensor]
    names: list[str]

    @property
    def key_rows(self) -> dict[str, dict[str, Tensor]]:
        """What the momentum encoder embeds."""
        return self.rows


class Examples(Protocol):
    """What is drawn from: triples of documents, pairs of sentences."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...

    def language_pairs(self) -> np.ndarray:
        """(examples,), an id for each pair of languages."""

    def set_epoch(self, epoch: int) -> None:
        """Draws of this epoch follow."""


BatchType = TypeVar("BatchType", bound=tuple)


def steps_per_epoch(recipe: PretrainRecipe | PretrainSentencesRecipe, examples: Examples, num_processes: int) -> int:
    """
    Raises:
        ValueError: a batch over all processes is larger than the epoch.
    """
    return math.ceil(len(_order(recipe, examples, num_processes, epoch=0)) / recipe.gradient_accumulation_steps)


def batches(
    recipe: PretrainRecipe | PretrainSentencesRecipe,
    accelerator: Accelerator,
    examples: Examples,
    collate: Callable[[Sequence[Any]], BatchType],
    first_step: int,
) -> Iterator[list[BatchType]]:
    """The batches of each optimizer step, from `first_step` on and without end. The last step of an epoch may have
    fewer.

    Args:
        collate: from some examples to their batch.
    """
    num_processes, accumulation = accelerator.num_processes, recipe.gradient_accumulation_steps
    epoch, steps_done = divmod(first_step, steps_per_epoch(recipe, examples, num_processes))
    share = slice(accelerator.process_index, None, num_processes)
    while True:
        examples.set_epoch(epoch)
        order = _order(recipe, examples, num_processes, epoch)[steps_done * accumulation :, share]
        loader = DataLoader(
            cast(Dataset, examples),
            batch_sampler=map(np.ndarray.tolist, order),
            num_workers=recipe.num_workers,
            pin_memory=accelerator.device.type == "cuda",
            generator=torch.Generator(),  # drawing a seed for the workers must not disturb dropout
            collate_fn=collate,
        )
        on_device = (send_to_device(batch, accelerator.device, non_blocking=True) for batch in loader)
        while group := list(itertools.islice(on_device, accumulation)):
            yield group
        epoch, steps_done = epoch + 1, 0


def _order(
    recipe: PretrainRecipe | PretrainSentencesRecipe, examples: Examples, num_processes: int, epoch: int
) -> np.ndarray:
    """(batches, examples of a batch over all processes), indices of examples."""
    return batches_of_epoch(
        examples.language_pairs(),
        recipe.batch_size * num_processes,
        epoch=epoch,
        seed=recipe.seed,
        language_exponent=recipe.language_exponent,
    )


def collate(
    triples: Sequence[dict[str, Any]],
    roles: Sequence[str],
    tokenizer: HMDETokenizer,
    query_path: QueryPath | None = "sentence_encoder",
    sentence_vectors: SentenceVectors | None = None,
) -> Batch:
    """Tokenize the documents and queries of some triples.

    Args:
        roles: whose documents the triples have.
        query_path: what encodes the queries; None if there is no loss for them.
        sentence_vectors: where the documents' sentence vectors are kept; then no document is tokenized.
    """
    rows = {}
    queries = [triple["query"] for triple in triples]
    if query_path in ("sentence_encoder", "both"):
        rows["queries"] = dict(tokenizer(queries, as_queries=True, padding=True, return_tensors="pt"))
    if query_path in ("document_encoder", "both"):
        rows["queries_as_documents"] = dict(tokenizer(queries, padding=True, return_tensors="pt"))
    if sentence_vectors is None:
        documents = [triple[role] for role in roles for triple in triples]
        texts, languages = [article["text"] for article in documents], [article["language"] for article in documents]
        rows["documents"] = dict(tokenizer(texts, language=languages, padding=True, return_tensors="pt"))
    else:
        keys = [(triple[LANGUAGE_OF[role]], triple[CONCEPT_OF[role]]) for role in roles for triple in triples]
        rows["documents"] = sentence_vectors.batch(keys)
    concepts = {role: torch.tensor([integer_of(triple[CONCEPT_OF[role]]) for triple in triples]) for role in roles}
    names = [
        f"{triple['concept_id']} ({triple['anchor_language']}, {triple['positive_language']}; hard negative "
        f"{triple['negative_id']})"
        for triple in triples
    ]
    return Batch(rows, concepts, names)


def integer_of(concept_id: str) -> int:
    """An integer for a concept that is the same in every batch, process and run."""
    return int.from_bytes(hashlib.blake2b(concept_id.encode(), digest_size=8).digest(), "little", signed=True)
