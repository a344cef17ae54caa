"""The batches of a pretraining run, step by step, from any step on."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch.utils.data import DataLoader

from modeling_hmde import HMDETokenizer
from training.cached_gradients import Chunk, cut_into_chunks
from training.data import Batch, Triples, collate
from training.sampler import batches_of_epoch
from training.sentence_vectors import SentenceVectors

if TYPE_CHECKING:
    from training.pretrain import PretrainRecipe


class Batches:
    """The batches of a run, by optimizer step."""

    def __init__(
        self, recipe: PretrainRecipe, accelerator: Accelerator, tokenizer: HMDETokenizer, triples: Triples
    ) -> None:
        self.recipe = recipe
        self.accelerator = accelerator
        self.tokenizer = tokenizer
        self.triples = triples
        self.sentence_vectors: SentenceVectors | None = None
        self.language_pairs = triples.language_pairs()
        self.lengths = triples.lengths() if recipe.group_by_length else None
        self.steps_per_epoch = math.ceil(len(self._batches(epoch=0)) / recipe.gradient_accumulation_steps)
        self.total_steps = int(min(recipe.epochs * self.steps_per_epoch, recipe.max_steps or math.inf))

    def _batches(self, epoch: int) -> np.ndarray:
        return batches_of_epoch(
            self.language_pairs,
            self.recipe.batch_size * self.accelerator.num_processes,
            epoch=epoch,
            seed=self.recipe.seed,
            lengths=self.lengths,
            same_languages=self.recipe.same_languages,
            language_exponent=self.recipe.language_exponent,
        )

    def steps(self, first_step: int) -> Iterator[list[Batch]]:
        """From `first_step` on, the batches of each optimizer step; the last step of an epoch may have fewer."""
        accumulation = self.recipe.gradient_accumulation_steps
        mine = slice(self.accelerator.process_index, None, self.accelerator.num_processes)
        step = first_step
        while step < self.total_steps:
            epoch, done = divmod(step, self.steps_per_epoch)
            self.triples.set_epoch(epoch)
            loader = DataLoader(
                self.triples,
                batch_sampler=map(np.ndarray.tolist, self._batches(epoch)[done * accumulation :, mine]),
                num_workers=self.recipe.num_workers,
                pin_memory=self.accelerator.device.type == "cuda",
                generator=torch.Generator(),  # drawing a seed for the workers must not disturb dropout
                collate_fn=functools.partial(
                    collate,
                    tokenizer=self.tokenizer,
                    both_sides=self.recipe.symmetric,
                    mixup=self.recipe.mixup,
                    sentence_vectors=self.sentence_vectors,
                ),
            )
            batches = (send_to_device(batch, self.accelerator.device, non_blocking=True) for batch in loader)
            while step < self.total_steps and (group := list(itertools.islice(batches, accumulation))):
                yield group
                step += 1

    def chunks(self, batch: Batch) -> list[Chunk]:
        queries = batch.queries if self.recipe.query_weight > 0 else None
        return cut_into_chunks(
            batch.documents, queries, self.recipe.max_tokens_per_chunk, self.accelerator.num_processes
        )
