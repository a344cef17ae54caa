"""What the processes of a run do together: sum gradients, count chunks, collect sharded weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn
from torch.distributed.tensor import DTensor


def most_of_any_process(count: int, device: torch.device) -> int:
    """The largest `count` of all processes."""
    counts = torch.tensor(count, device=device)
    dist.all_reduce(counts, op=dist.ReduceOp.MAX)
    return int(counts)


@contextmanager
def gradients_synchronised(accelerator: Accelerator, encoder: nn.Module, synchronised: bool) -> Iterator[None]:
    """Within, backward passes take the mean of the gradients over processes if `synchronised`; otherwise they only add
    to those of this process."""
    accelerator.sync_gradients = synchronised  # read by the optimizer that accelerate wraps
    try:
        with nullcontext() if synchronised else accelerator.no_sync(encoder):
            yield
    finally:  # also after an error: while it is false, no optimizer of this process steps or loads its state
        accelerator.sync_gradients = True


@torch.no_grad()
def copy_weights(copy: nn.Module, sharded: nn.Module) -> None:
    """Give a copy of a model, which is whole, the weights that FSDP has sharded. All processes must ask for them."""
    for whole, weight in zip(copy.parameters(), sharded.parameters()):
        whole.copy_(weight.full_tensor() if isinstance(weight, DTensor) else weight)
