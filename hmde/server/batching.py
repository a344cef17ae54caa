"""Requests that arrive together are computed together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any


class Overloaded(Exception):
    """More texts wait than may wait."""


class Batcher:
    """Calls a function once for all that wait. While it computes, others gather; nobody waits for company.

    Args:
        compute: from texts to as many results. It runs in the executor, one call at a time.
        executor: with one thread, if several batchers share what must not be used by two threads.
        max_together: texts of one call; a request with more is one call by itself.
        max_waiting: texts that may wait.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[str]], Sequence[Any]],
        executor: Executor,
        max_together: int,
        max_waiting: int,
    ) -> None:
        self._compute, self._executor = compute, executor
        self._max_together, self._max_waiting = max_together, max_waiting
        self._waiting: deque[tuple[Sequence[str], asyncio.Future[Sequence[Any]]]] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def __call__(self, texts: Sequence[str]) -> Sequence[Any]:
        """
        Raises:
            Overloaded: too many texts wait already.
            Exception: what `compute` raises.
        """
        num_waiting = sum(len(others) for others, _ in self._waiting)
        if self._waiting and num_waiting + len(texts) > self._max_waiting:
            raise Overloaded(f"{num_waiting} texts wait already; come again in a few seconds")
        future: asyncio.Future[Sequence[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((texts, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            texts = [text for given, _ in batch for text in given]
            try:
                results = await asyncio.get_running_loop().run_in_executor(self._executor, self._compute, texts)
            except Exception as error:  # goes to those who asked
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            first = 0
            for given, future in batch:
                if not future.done():  # it is, if its client has gone
                    future.set_result(results[first : first + len(given)])
                first += len(given)

    def _next_batch(self) -> list[tuple[Sequence[str], asyncio.Future[Sequence[Any]]]]:
        batch = [self._waiting.popleft()]
        size = len(batch[0][0])
        while self._waiting and size + len(self._waiting[0][0]) <= self._max_together:
            batch.append(self._waiting.popleft())
            size += len(batch[-1][0])
        return batch
