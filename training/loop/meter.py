"""Losses and throughput since the last reading."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Work(NamedTuple):
    """What one batch gives one process to do."""

    documents: int
    tokens: int  # of the documents, whether they are read now or their sentence vectors are kept


class Meter:
    """Means of this process's losses, throughput over all processes, and the share of time spent waiting for data.

    Args:
        num_processes: each of which does as much as this one.
    """

    def __init__(self, num_processes: int) -> None:
        self.num_processes = num_processes
        self._start()

    def _start(self) -> None:
        self.losses: dict[str, list[Tensor]] = {}
        self.work: list[Work] = []
        self.waited = 0.0
        self.began = time.perf_counter()

    def waiting(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches; the time until each is there counts as waiting."""
        began = time.perf_counter()
        for batch in batches:
            self.waited += time.perf_counter() - began
            yield batch
            began = time.perf_counter()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within, nothing is trained, and the time does not count."""
        began = time.perf_counter()
        yield
        self.began += time.perf_counter() - began

    def add(self, losses: dict[str, Tensor], work: Work) -> None:
        for name, loss in losses.items():
            self.losses.setdefault(name, []).append(loss)
        self.work.append(work)

    def read(self) -> dict[str, float]:
        seconds = time.perf_counter() - self.began
        documents, tokens = (sum(values) / seconds for values in zip(*self.work))
        entry = {name: float(torch.stack(values).mean()) for name, values in self.losses.items()}
        entry |= {
            "documents_per_second": self.num_processes * documents,
            "tokens_per_second": self.num_processes * tokens,
            "share_of_time_waiting_for_data": self.waited / seconds,
        }
        self._start()
        return entry
