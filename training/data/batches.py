"""Batches of examples, tokenized, step by step, from any step on."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from modeling_hmde import HMDETokenizer
from training.data.kinds import DOCUMENTS, QUERIES, Kind
from training.data.queries import QueryPath
from training.data.sampler import batches_of_epoch
from training.data.sentence_vectors import SentenceVectors
from training.data.triples import CONCEPT_OF, LANGUAGE_OF


class Batch(NamedTuple):
    """Triples ready for the model.

    Args:
        rows: by kind: documents, all of one role after all of another, in the order of `concepts`; and, if there is a
            loss for them, queries by one path or both. Each has input_ids and attention_mask, (rows, tokens), or see
            `SentenceVectors`.
        concepts: by role, (triples,), int64.
        names: (triples,), for messages.
    """

    rows: dict[Kind, dict[str, Tensor]]
    concepts: dict[str, Tensor]
    names: list[str]


class Examples(Protocol):
    """What is drawn from: triples of documents, pairs of sentences."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of all that is drawn from."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...

    def language_pairs(self) -> np.ndarray:
        """(examples,), an id for each pair of languages."""

    def set_epoch(self, epoch: int) -> None:
        """Draws of this epoch follow."""


class Batches:
    """The batches of each optimizer step, from any step on.

    Args:
        examples: what is drawn from.
        collate: from some examples to their batch.
        accelerator: the processes, each of which gets its share, on its device.
        batch_size: examples of one batch of one process.
        accumulation: batches of one optimizer step. The last step of an epoch may have fewer.
        language_exponent: a pair of languages with n examples is drawn with a chance in proportion to n to this power.
        seed: of the order.
        num_workers: processes that collate ahead.

    Raises:
        ValueError: a batch over all processes is larger than the epoch.
    """

    def __init__(
        self,
        examples: Examples,
        collate: Callable[[Sequence[Any]], Any],
        accelerator: Accelerator,
        *,
        batch_size: int,
        accumulation: int,
        language_exponent: float,
        seed: int,
        num_workers: int,
    ) -> None:
        self.examples = examples
        self.fingerprint = examples.fingerprint
        self.collate = collate
        self.accelerator = accelerator
        self.accumulation = accumulation
        self.num_workers = num_workers
        self.order = functools.partial(
            batches_of_epoch,
            examples.language_pairs(),
            batch_size * accelerator.num_processes,
            seed=seed,
            language_exponent=language_exponent,
        )
        self.steps_per_epoch = math.ceil(len(self.order(epoch=0)) / accumulation)

    def from_step(self, first_step: int) -> Iterator[list[Any]]:
        """The batches of each step, without end."""
        epoch, steps_done = divmod(first_step, self.steps_per_epoch)
        share = slice(self.accelerator.process_index, None, self.accelerator.num_processes)
        while True:
            self.examples.set_epoch(epoch)
            order = self.order(epoch=epoch)[steps_done * self.accumulation :, share]
            loader = DataLoader(
                cast(Dataset, self.examples),
                batch_sampler=map(np.ndarray.tolist, order),
                num_workers=self.num_workers,
                pin_memory=self.accelerator.device.type == "cuda",
                generator=torch.Generator(),  # drawing a seed for the workers must not disturb dropout
                collate_fn=self.collate,
            )
            on_device = (send_to_device(batch, self.accelerator.device, non_blocking=True) for batch in loader)
            while group := list(itertools.islice(on_device, self.accumulation)):
                yield group
            epoch, steps_done = epoch + 1, 0


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
    rows: dict[Kind, dict[str, Tensor]] = {}
    queries = [triple["query"] for triple in triples]
    if sentence_vectors is None:
        articles = [triple[role] for role in roles for triple in triples]
        texts, languages = [article["text"] for article in articles], [article["language"] for article in articles]
        documents = dict(tokenizer(texts, language=languages, padding=True, return_tensors="pt"))
    else:
        keys = [(triple[LANGUAGE_OF[role]], triple[CONCEPT_OF[role]]) for role in roles for triple in triples]
        documents = sentence_vectors.batch(keys)
    if query_path in ("sentence_encoder", "both"):
        rows[QUERIES] = dict(tokenizer(queries, as_queries=True, padding=True, return_tensors="pt"))
    if query_path in ("document_encoder", "both"):
        rows[Kind("queries", "document_encoder")] = dict(tokenizer(queries, padding=True, return_tensors="pt"))
    rows[DOCUMENTS] = documents
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
