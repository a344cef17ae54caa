"""Vectors of all processes, with their gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class _GatherRows(torch.autograd.Function):
    """The rows of all processes, in the order of their ranks. Every process has the same number of rows.

    The backward pass takes the sum over processes, each of which has a loss of its own. DDP and FSDP then take the mean
    of the parameters' gradients over processes, which makes it the gradient of the mean loss.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        gathered = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, rows)
        ctx.num_rows = len(rows)
        return torch.cat(gathered)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gradient = gradients[0].clone(memory_format=torch.contiguous_format)  # autograd may still own the original
        dist.all_reduce(gradient)
        return gradient[dist.get_rank() * ctx.num_rows :][: ctx.num_rows]


def rows_of_all_processes(rows: Tensor) -> Tensor:
    """(rows, ...) -> (processes * rows, ...), in the order of ranks. Gradients go back to the process of each row."""
    if not dist.is_initialized():
        return rows
    return _GatherRows.apply(rows.contiguous())


def rows_of_other_processes(rows: Tensor) -> Tensor:
    """(rows, ...) -> ((processes - 1) * rows, ...). Gradients go back to the process of each row."""
    if not dist.is_initialized():
        return rows[:0]
    gathered = rows_of_all_processes(rows)
    first = dist.get_rank() * len(rows)
    return torch.cat([gathered[:first], gathered[first + len(rows) :]])
