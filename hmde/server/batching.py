"""Requests that arrive together are computed together, a part of each in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any


class Overloaded(Exception):
    """More texts wait than may wait."""


@dataclass
class _Request:
    texts: Sequence[str]
    answer: asyncio.Future[list[Any]]
    begun: int = 0  # texts that have been given to `compute`
    results: list[Any] = field(default_factory=list)


class Batcher:
    """Calls a function once for some texts of all that wait. While it computes, others gather; nobody waits for
    company. A large request is computed in parts, between which the others have their turn; what is left of it is
    dropped when nobody waits for its answer any more.

    Args:
        compute: from texts to as many results. It runs in the executor, one call at a time.
        executor: with one thread, if several batchers share what must not be used by two threads.
        max_together: texts of one call.
        max_waiting: texts that may wait.
        max_characters: of the texts of one call; a longer text is a call by itself.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[str]], Sequence[Any]],
        executor: Executor,
        max_together: int,
        max_waiting: int,
        max_characters: int = 32_768,
    ) -> None:
        self._compute, self._executor = compute, executor
        self._max_together, self._max_waiting, self._max_characters = max_together, max_waiting, max_characters
        self._waiting: deque[_Request] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def __call__(self, texts: Sequence[str]) -> list[Any]:
        """
        Raises:
            Overloaded: too many texts wait already.
            Exception: what `compute` raises.
        """
        num_waiting = sum(len(request.texts) - request.begun for request in self._waiting)
        if self._waiting and num_waiting + len(texts) > self._max_waiting:
            raise Overloaded(f"{num_waiting} texts wait already; come again in a few seconds")
        request = _Request(texts, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await request.answer

    async def _work(self) -> None:
        while parts := self._next_parts():
            texts = [text for _, part in parts for text in part]
            try:
                results = iter(await asyncio.get_running_loop().run_in_executor(self._executor, self._compute, texts))
            except Exception as error:  # goes to those who asked
                for request, _ in parts:
                    if not request.answer.done():
                        request.answer.set_exception(error)
                continue
            for request, part in parts:
                request.results += [next(results) for _ in part]
                if len(request.results) == len(request.texts) and not request.answer.done():
                    request.answer.set_result(request.results)

    def _next_parts(self) -> list[tuple[_Request, Sequence[str]]]:
        """Some texts of each request in turn, the first of all at least. A request with texts left goes to the end."""
        self._waiting = deque(request for request in self._waiting if not request.answer.done())  # its client has gone
        parts: list[tuple[_Request, Sequence[str]]] = []
        room, characters = self._max_together, self._max_characters
        for _ in range(len(self._waiting)):
            request = self._waiting[0]
            part: list[str] = []
            for text in request.texts[request.begun :]:
                if room == 0 or (len(text) > characters and (parts or part)):
                    break
                part.append(text)
                room, characters = room - 1, max(characters - len(text), 0)
            if not part:
                break
            parts.append((request, part))
            request.begun += len(part)
            self._waiting.rotate(-1)
        self._waiting = deque(request for request in self._waiting if request.begun < len(request.texts))
        return parts
