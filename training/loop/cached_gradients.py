"""Contrastive batches of any size at the memory of one chunk (GradCache; Gao et al., 2021).

The loss of a batch needs all its embeddings at once, but not all activations. So: embed the batch chunk by chunk
without a graph, take the loss and its gradient with respect to the embeddings, then embed each chunk once more, with
the very same dropout, and send its part of that gradient back through the encoder. The price is a second forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.checkpoint import get_device_states, set_device_states
from transformers.utils import logging

from training.loop.distributed import gradients_synchronised, most_of_any_process

logger = logging.get_logger(__name__)

# A padded batch: tensors (rows, length, ...), among them the attention_mask (rows, length). Those whose names begin
# with `target` have a length of their own.
Rows = dict[str, Tensor]
Chunk = dict[Any, Rows]  # what is embedded in one forward pass, by name or kind: documents, queries ...
Embeddings = dict[Any, Tensor]  # what an encoder makes of it, by the same: (rows, hidden)


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
        encoder: from a chunk to its embeddings.
        chunks: of the batch, the same number on every process; the last one reaches every trained parameter.
        objective: from the embeddings of the batch to its losses, whose sum is minimised. Called once.
        weight: what gradients are multiplied by.
        synchronise: take the mean of the gradients over processes, in the last chunk's backward pass.

    Returns:
        the losses, detached.
    """
    if len(chunks) == 1:
        with gradients_synchronised(accelerator, encoder, synchronise):
            losses = objective(encoder(chunks[0]))
            accelerator.backward(weight * torch.stack(list(losses.values())).sum())
        return {name: loss.detach() for name, loss in losses.items()}

    random_states, parts = [], []
    with torch.no_grad():
        for chunk in chunks:
            tensors = [tensor for rows in chunk.values() for tensor in rows.values()]
            random_states.append((torch.get_rng_state(), *get_device_states(*tensors)))
            parts.append(encoder(chunk))
    batch = {name: vectors.requires_grad_() for name, vectors in _concatenated(parts).items()}
    losses = objective(batch)
    gradients = torch.autograd.grad(torch.stack(list(losses.values())).sum(), list(batch.values()))
    remaining = dict(zip(batch, gradients))  # by name, (rows of the chunks to come, hidden)

    for chunk, random_state in zip(chunks, random_states):
        last = chunk is chunks[-1]
        with gradients_synchronised(accelerator, encoder, synchronise and last):
            products = []
            for name, vectors in _replay(encoder, chunk, random_state).items():
                gradient, remaining[name] = remaining[name].tensor_split([len(vectors)])
                products.append((vectors * gradient).sum())
            surrogate = torch.stack(products).sum()
            if surrogate.requires_grad:  # not so for queries of a frozen sentence encoder
                accelerator.backward(weight * surrogate)
    return {name: loss.detach() for name, loss in losses.items()}


@torch.no_grad()
def embed_in_chunks(encoder: nn.Module, batch: Chunk, max_tokens: int) -> Embeddings:
    """The embeddings of a batch, without gradient, in chunks as `cut_into_chunks` makes them."""
    return _concatenated([encoder(chunk) for chunk in cut_into_chunks(batch, max_tokens)])


def cut_into_chunks(batch: Chunk, max_tokens: int, num_processes: int = 1) -> list[Chunk]:
    """Chunks of at most `max_tokens` real tokens, in the order of the batch.

    A longer row gets a chunk of its own. With several processes, all get as many chunks as the one that needs most: a
    forward or backward pass may hold collective calls, which all processes must make.

    Args:
        batch: rows by name. Those that reach every trained parameter come last.
    """
    lengths = [length for rows in batch.values() for length in rows["attention_mask"].sum(dim=1).tolist()]
    if max(lengths) > max_tokens:
        logger.warning_once(
            f"A document of {max(lengths)} tokens is longer than max_tokens_per_chunk, {max_tokens}, and is encoded in "
            "a chunk of its own. Where that does not fit the memory, lower max_sentences. (Said once.)"
        )
    bounds = chunk_bounds(lengths, max_tokens)
    if num_processes > 1:
        device = next(iter(batch.values()))["attention_mask"].device
        most = most_of_any_process(len(bounds), device)
        while len(bounds) < most:
            largest = max(range(len(bounds)), key=lambda index: bounds[index][1] - bounds[index][0])
            first, end = bounds[largest]
            bounds[largest : largest + 1] = [(first, (first + end) // 2), ((first + end) // 2, end)]
    return [_slice(batch, first, end) for first, end in bounds]


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


def _slice(batch: Chunk, first: int, end: int) -> Chunk:
    """Rows `first` to `end`, counted through all names, without the columns in which all of them are padding."""
    chunk = {}
    for name, rows in batch.items():
        num_rows = len(rows["attention_mask"])
        own = slice(max(first, 0), min(end, num_rows))
        if own.start < own.stop:
            longest = int(rows["attention_mask"][own].sum(dim=1).max())
            chunk[name] = {
                key: tensor[own] if key.startswith("target") else tensor[own, :longest] for key, tensor in rows.items()
            }
        first, end = first - num_rows, end - num_rows
    return chunk


def _concatenated(parts: list[Embeddings]) -> Embeddings:
    """The embeddings of all chunks."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: torch.cat([part[name] for part in parts if name in part]) for name in names}


def _replay(encoder: nn.Module, chunk: Chunk, random_state: tuple[Tensor, list[int], list[Tensor]]) -> Embeddings:
    """Embed a chunk with the random numbers of the first time, and leave the generators as they are now."""
    cpu_state, devices, device_states = random_state
    with torch.random.fork_rng(devices=devices):
        torch.set_rng_state(cpu_state)
        set_device_states(devices, device_states)
        return encoder(chunk)
