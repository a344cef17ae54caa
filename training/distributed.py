"""What processes tell each other: rows of vectors, with their gradients, and how much each has to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


class _GatherRows(torch.autograd.Function):
    """The rows of all processes, in the order of their ranks. Every process has as many.

    The backward pass sums over processes, each of which has a loss of its own; the mean over processes that DDP and
    FSDP then take of the parameters' gradients makes that the gradient of the mean loss.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        gathered = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, rows)
        ctx.num_rows = len(rows)
        return torch.cat(gathered)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gradient = gradients[0].clone(memory_format=torch.contiguous_format)  # autograd may still own what came in
        dist.all_reduce(gradient)
        return gradient[dist.get_rank() * ctx.num_rows :][: ctx.num_rows]


def rows_of_all_processes(rows: Tensor) -> Tensor:
    """(rows, ...) -> (processes * rows, ...), in the order of ranks, gradients going back to where a row came from."""
    if not dist.is_initialized():
        return rows
    return _GatherRows.apply(rows.contiguous())


def rows_of_other_processes(rows: Tensor) -> Tensor:
    """(rows, ...) -> ((processes - 1) * rows, ...), gradients going back to where a row came from."""
    if not dist.is_initialized():
        return rows[:0]
    gathered = rows_of_all_processes(rows)
    first = dist.get_rank() * len(rows)
    return torch.cat([gathered[:first], gathered[first + len(rows) :]])


def mean_of_all_processes(values: Tensor) -> Tensor:
    """(values,) -> the mean of those of all processes, which may have different numbers of them, with its gradient."""
    sum_and_number = torch.stack([values.sum(), values.new_tensor(len(values))])
    total, number = rows_of_all_processes(sum_and_number.unsqueeze(0)).sum(dim=0)
    return total / number


def most_of_any_process(count: int, device: torch.device) -> int:
    """The largest `count` of all processes."""
    if not dist.is_initialized():
        return count
    counts = torch.tensor(count, device=device)
    dist.all_reduce(counts, op=dist.ReduceOp.MAX)
    return int(counts)


@contextmanager
def gradients_synchronised(accelerator: Accelerator, encoder: nn.Module, synchronised: bool) -> Iterator[None]:
    """Whether backward passes within take the mean of the gradients over processes, or add them up on each."""
    accelerator.sync_gradients = synchronised  # read by the optimizer and by DeepSpeed
    with nullcontext() if synchronised else accelerator.no_sync(encoder):
        yield


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, momentum: float) -> None:
    """slow = momentum * slow + (1 - momentum) * fast, weight by weight. `fast` may be sharded over processes."""
    for ours, theirs in zip(slow.parameters(), fast.parameters()):
        ours.lerp_(whole(theirs).to(ours), 1 - momentum)


def whole(weight: Tensor) -> Tensor:
    """A weight that FSDP may have sharded; all processes must ask for it."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight.detach()
