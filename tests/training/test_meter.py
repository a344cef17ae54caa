"""What is logged of a run, by a clock that the tests turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from training.loop import meter
from training.loop.meter import Meter, Work


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(meter, "time", clock)
    return clock


def batches(clock: Clock) -> Iterator[str]:
    for name in "ab":
        clock.now += 1
        yield name


def test_rates_are_per_second_over_all_processes_and_losses_are_means(clock) -> None:
    read = Meter(num_processes=3)
    for name in read.waiting(batches(clock)):
        clock.now += 3
        losses = {"document_loss": torch.tensor(1.0 if name == "a" else 2.0)}
        if name == "b":
            losses["query_loss"] = torch.tensor(5.0)
        read.add(losses, Work(documents=4, tokens=100))
    assert read.read() == pytest.approx(
        {
            "document_loss": 1.5,
            "query_loss": 5.0,
            "documents_per_second": 3 * 8 / 8,
            "tokens_per_second": 3 * 200 / 8,
            "share_of_time_waiting_for_data": 2 / 8,
        }
    )


def test_what_is_no_training_takes_no_time(clock) -> None:
    read = Meter(num_processes=1)
    clock.now += 1
    with read.paused():
        clock.now += 50
    read.add({}, Work(4, 6))
    assert read.read()["documents_per_second"] == 4


def test_each_reading_is_of_what_came_since_the_last_one(clock) -> None:
    read = Meter(num_processes=1)
    list(read.waiting(batches(clock)))
    read.add({"loss": torch.tensor(9.0)}, Work(1, 1))
    read.read()
    clock.now += 2
    read.add({"loss": torch.tensor(1.0)}, Work(4, 6))
    assert read.read() == pytest.approx(
        {"loss": 1.0, "documents_per_second": 2, "tokens_per_second": 3, "share_of_time_waiting_for_data": 0}
    )
