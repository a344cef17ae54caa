"""Contrastive batches of any size at the memory of one chunk (GradCache; Gao et al., 2021).

The loss of a batch needs all its embeddings at once, but not all activations. So: embed the batch chunk by chunk
without a graph, take the loss and its gradient with respect to the embeddings, then embed each chunk once more, with
the very same dropout, and send its part of that gradient back through the encoder. The price is a second forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.checkpoint import get_device_states, set_device_states
from transformers.utils import logging

from training.distributed import gradients_synchronised, most_of_any_process

logger = logging.get_logger(__name__)

Rows = dict[str, Tensor]  # of a padded batch: tensors (rows, length, ...), among them the attention_mask (rows, length)


class Chunk(NamedTuple):
    """Documents and queries that are embedded in one forward pass; None where there are none."""

    documents: Rows | None
    queries: Rows | None


class Embeddings(NamedTuple):
    """What an encoder makes of a chunk, or of all chunks of a batch."""

    documents: Tensor | None  # (documents, hidden)
    queries: Tensor | None  # (queries, hidden)
    temperature: Tensor | None  # (), where it is learned


def backward_through_chunks(
    accelerator: Accelerator,
    encoder: nn.Module,
    chunks: list[Chunk],
    objective: Callable[[Embeddings], dict[str, Tensor]],
    *,
    weight: float = 1.0,
    synchronise: bool = True,
) -> dict[str, Tensor]:
    """Add the gradients of a batch's loss to the encoder's parameters. One chunk takes the plain way.

    Args:
        encoder: from a chunk's documents and queries to Embeddings.
        chunks: of the batch, as many on every process; the last one reaches every trained parameter.
        objective: from the embeddings of the batch to its losses, whose sum is minimised.
        weight: what gradients are multiplied by.
        synchronise: take the mean of the gradients over processes, in the last chunk's backward pass.

    Returns:
        the losses, detached.
    """
    if len(chunks) == 1:
        with gradients_synchronised(accelerator, encoder, synchronise):
            losses = objective(encoder(*chunks[0]))
            accelerator.backward(weight * torch.stack(list(losses.values())).sum())
        return {name: loss.detach() for name, loss in losses.items()}

    random_states, parts = [], []
    with torch.no_grad():
        for chunk in chunks:
            random_states.append((torch.get_rng_state(), *get_device_states(*_tensors(chunk))))
            parts.append(encoder(*chunk))
    batch = _together(parts)
    leaves = [vectors.requires_grad_() for vectors in batch if vectors is not None]
    losses = objective(batch)
    gradients = torch.autograd.grad(torch.stack(list(losses.values())).sum(), leaves)
    remaining = dict(zip((name for name, vectors in zip(batch._fields, batch) if vectors is not None), gradients))

    for chunk, random_state in zip(chunks, random_states):
        last = chunk is chunks[-1]
        with gradients_synchronised(accelerator, encoder, synchronise and last):
            again = _replay(encoder, chunk, random_state)
            products = []
            for name in ("documents", "queries"):
                vectors = getattr(again, name)
                if vectors is not None:
                    gradient, remaining[name] = remaining[name].split(
                        [len(vectors), len(remaining[name]) - len(vectors)]
                    )
                    products.append((vectors * gradient).sum())
            if last and again.temperature is not None:
                products.append(again.temperature * remaining["temperature"])
            surrogate = torch.stack(products).sum()
            if surrogate.requires_grad:  # not so for queries of a frozen sentence encoder
                accelerator.backward(weight * surrogate)
    return {name: loss.detach() for name, loss in losses.items()}


@torch.no_grad()
def embed_chunks(encoder: nn.Module, chunks: list[Chunk]) -> Embeddings:
    """The embeddings of a batch, without gradient."""
    return _together([encoder(*chunk) for chunk in chunks])


def cut_into_chunks(documents: Rows, queries: Rows | None, max_tokens: int, num_processes: int = 1) -> list[Chunk]:
    """Chunks of at most `max_tokens` real tokens, queries first, in the order of the batch.

    A row that is longer by itself gets a chunk of its own. With several processes, all get as many chunks as the one
    that needs most: each forward and backward pass may hold collective calls, which all processes must make.
    """
    num_queries = 0 if queries is None else len(queries["attention_mask"])
    lengths = documents["attention_mask"].sum(dim=1).tolist()
    if queries is not None:
        lengths = queries["attention_mask"].sum(dim=1).tolist() + lengths
    if max(lengths) > max_tokens:
        logger.warning_once(
            f"A document of {max(lengths)} tokens is longer than max_tokens_per_chunk, {max_tokens}, and is encoded in "
            "a chunk of its own. Where that does not fit the memory, lower max_sentences. (Said once.)"
        )
    bounds = chunk_bounds(lengths, max_tokens)
    if num_processes > 1:
        most = most_of_any_process(len(bounds), documents["attention_mask"].device)
        while len(bounds) < most:
            place = max(range(len(bounds)), key=lambda place: bounds[place][1] - bounds[place][0])
            first, end = bounds[place]
            bounds[place : place + 1] = [(first, (first + end) // 2), ((first + end) // 2, end)]
    return [
        Chunk(
            _slice(documents, max(first - num_queries, 0), end - num_queries),
            None if queries is None else _slice(queries, first, min(end, num_queries)),
        )
        for first, end in bounds
    ]


def chunk_bounds(lengths: list[int], max_tokens: int) -> list[tuple[int, int]]:
    """Runs of rows of at most `max_tokens` tokens together, as (first, end).

    >>> chunk_bounds([3, 3, 9, 1, 2], max_tokens=6)
    [(0, 2), (2, 3), (3, 5)]
    """
    bounds: list[tuple[int, int]] = []
    tokens = max_tokens + 1
    for row, length in enumerate(lengths):
        if tokens + length > max_tokens:
            bounds.append((row, row))
            tokens = 0
        bounds[-1] = (bounds[-1][0], row + 1)
        tokens += length
    return bounds


def _slice(rows: Rows, first: int, end: int) -> Rows | None:
    """Some rows, without the columns in which all of these are padding."""
    if first >= end:
        return None
    longest = int(rows["attention_mask"][first:end].sum(dim=1).max())
    return {name: tensor[first:end, :longest] for name, tensor in rows.items()}


def _tensors(chunk: Chunk) -> list[Tensor]:
    return [tensor for rows in chunk if rows is not None for tensor in rows.values()]


def _together(parts: list[Embeddings]) -> Embeddings:
    documents = [part.documents for part in parts if part.documents is not None]
    queries = [part.queries for part in parts if part.queries is not None]
    return Embeddings(torch.cat(documents), torch.cat(queries) if queries else None, parts[-1].temperature)


def _replay(encoder: nn.Module, chunk: Chunk, random_state: tuple[Tensor, list[int], list[Tensor]]) -> Embeddings:
    """Embed a chunk with the random numbers of the first time, and leave the generators as they are now."""
    cpu_state, devices, device_states = random_state
    with torch.random.fork_rng(devices=devices):
        torch.set_rng_state(cpu_state)
        set_device_states(devices, device_states)
        return encoder(*chunk)
