"""Losses and throughput since the last reading."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch
from torch import Tensor, nn

from training.data import Batch

T = TypeVar("T")


class Meter:
    """Means of the losses, throughput over all processes, and the share of time spent waiting for data.

    Model FLOPs are counted by the usual rule: two for each weight and token going forward, four more going back where
    the weight is trained. The second forward pass of cached gradients, lookups and attention scores do not count.

    Args:
        encoder: whose weights are counted.
        num_processes: each of which does as much as this one.
        device_tflops: peak of one device in teraflops a second; with it the utilisation is logged.
    """

    def __init__(self, encoder: nn.Module, num_processes: int, device_tflops: float | None = None) -> None:
        self.num_processes = num_processes
        self.device_tflops = device_tflops
        self.flops_per_token = sum(
            (6 if weight.requires_grad else 2) * weight.numel()
            for name, weight in encoder.named_parameters()
            if weight.ndim > 1 and "sentence_encoder" in name and "embeddings" not in name
        )
        self._start()

    def _start(self) -> None:
        self.sums: dict[str, list[Tensor]] = {}
        self.documents = 0
        self.tokens = torch.zeros((), dtype=torch.long)
        self.waited = 0.0
        self.began = time.perf_counter()

    def waiting(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches; the time until each is there counts as waiting."""
        iterator = iter(batches)
        while True:
            began = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self.waited += time.perf_counter() - began
            yield batch

    def add(self, losses: dict[str, Tensor], batch: Batch) -> None:
        for name, loss in losses.items():
            self.sums.setdefault(name, []).append(loss.detach())
        self.documents += len(batch.documents["attention_mask"])
        self.tokens = self.tokens + batch.documents["attention_mask"].sum().cpu()

    def read(self) -> dict[str, float]:
        seconds = time.perf_counter() - self.began
        entry = {name: float(torch.stack(values).mean()) for name, values in self.sums.items()}
        tokens = float(self.tokens) / seconds
        entry |= {
            "documents_per_second": self.num_processes * self.documents / seconds,
            "tokens_per_second": self.num_processes * tokens,
            "share_of_time_waiting_for_data": self.waited / seconds,
        }
        if self.device_tflops is not None:
            entry["model_flop_utilisation"] = self.flops_per_token * tokens / (1e12 * self.device_tflops)
        self._start()
        return entry
