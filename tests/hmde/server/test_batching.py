"""Texts of requests that wait are computed together, within limits, and each request gets its own results."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from hmde.server.batching import Batcher, Overloaded


class Slow:
    """Computes capitals once it is let go, and refuses a text that is `bad`."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.begun, self.let_go = threading.Event(), threading.Event()

    def __call__(self, texts: Sequence[str]) -> list[str]:
        self.calls.append(list(texts))
        self.begun.set()
        assert self.let_go.wait(timeout=60)
        if "bad" in texts:
            raise ValueError("bad")
        return [text.upper() for text in texts]


def while_the_first_is_computed(scenario: Callable[[Slow, Batcher], Awaitable[None]]) -> Slow:
    """Run a scenario after a request for `a` has begun and before it is let go."""

    async def run() -> None:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(slow, executor, max_together=4, max_waiting=6, max_characters=50)
            first = asyncio.create_task(batcher(["a"]))
            await asyncio.to_thread(slow.begun.wait, 60)
            try:
                await asyncio.wait_for(scenario(slow, batcher), timeout=60)  # where an answer is lost
            finally:
                slow.let_go.set()
            assert await first == ["A"]

    slow = Slow()
    asyncio.run(run())
    return slow


async def asked(batcher: Batcher, *requests: list[str]) -> list[asyncio.Task[Sequence[str]]]:
    """Requests that wait."""
    tasks = [asyncio.create_task(batcher(texts)) for texts in requests]
    await asyncio.sleep(0)
    return tasks


def test_as_many_texts_as_allowed_are_computed_together_in_the_order_of_requests() -> None:
    async def scenario(slow: Slow, batcher: Batcher) -> None:
        waiting = await asked(batcher, ["b", "c"], ["d", "e"], ["f"])
        slow.let_go.set()
        assert [await task for task in waiting] == [["B", "C"], ["D", "E"], ["F"]]
        assert await batcher(list("123456")) == list("123456"), "more than four in one request"
        beside, late = await asked(batcher, [*"1234", "x" * 60], ["g"])
        assert (await late, await beside) == (["G"], [*"1234", "X" * 60])

    assert while_the_first_is_computed(scenario).calls == [
        *(["a"], ["b", "c", "d", "e"], ["f"], list("1234"), list("56")),
        *(list("1234"), ["g"], ["x" * 60]),  # who came later has a turn before the rest
    ]


def test_no_more_texts_wait_than_may() -> None:
    async def scenario(slow: Slow, batcher: Batcher) -> None:
        for _ in range(2):  # the second time after all have been computed
            waiting = await asked(batcher, ["b", "c"], ["d", "e"], ["f"])
            with pytest.raises(Overloaded, match="5 texts wait already"):
                await batcher(["g", "h"])
            waiting += await asked(batcher, ["g"])
            slow.let_go.set()
            await asyncio.gather(*waiting)
            slow.begun.clear()
            slow.let_go.clear()
            begun = await asked(batcher, ["a"])
            await asyncio.to_thread(slow.begun.wait, 60)
        slow.let_go.set()
        await asyncio.gather(*begun)

    while_the_first_is_computed(scenario)


def test_an_error_goes_to_those_who_asked_and_to_nobody_after_them() -> None:
    async def scenario(slow: Slow, batcher: Batcher) -> None:
        gone, bad, beside, later = await asked(batcher, ["x"], ["bad"], ["y", "z", "w"], ["later"])
        gone.cancel()
        slow.let_go.set()
        for task in (bad, beside):
            with pytest.raises(ValueError, match="bad"):
                await task
        assert await later == ["LATER"]

    while_the_first_is_computed(scenario)


def test_what_a_client_that_has_gone_asked_for_is_not_computed() -> None:
    async def scenario(slow: Slow, batcher: Batcher) -> None:
        gone, beside = await asked(batcher, ["b"], ["c"])
        gone.cancel()
        slow.let_go.set()
        assert await beside == ["C"]

    assert while_the_first_is_computed(scenario).calls == [["a"], ["c"]]
