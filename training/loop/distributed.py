"""What the processes of a run do together: sum gradients, count chunks, collect sharded weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor, nn
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
def copy_weights(copy: nn.Module, original: nn.Module) -> None:
    """Give a copy of a model, which is whole, the weights of the original, which FSDP may have sharded."""
    for target, weight in zip(copy.parameters(), original.parameters()):
        target.copy_(whole(weight))


def whole(weight: Tensor) -> Tensor:
    """A weight that FSDP may have sharded. All processes must ask for it."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight.detach()
