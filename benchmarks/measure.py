"""What all benchmarks measure with: time, peak memory and alternating trials.

The memory of a process is read from Linux's /proc.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch

from evaluation.tables import environment
from hmde.common.device import device
from hmde.common.files import write_json, write_text

Result = TypeVar("Result")


@dataclass
class Time:
    """What a block took, once it has ended."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of all threads; less disturbed by other programs


@contextmanager
def timed() -> Iterator[Time]:
    """Times a block, its work on the GPU included."""
    time_taken = Time()
    synchronize()
    began, cpu_began = time.perf_counter(), time.process_time()
    yield time_taken
    synchronize()
    time_taken.seconds, time_taken.cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began


def synchronize() -> None:
    """Waits for the GPU."""
    if device() == "cuda":
        torch.cuda.synchronize()


@dataclass
class Memory:
    """MiB held when a block began and, once it has ended, the most held within it."""

    before: float
    peak: float = 0.0

    def __str__(self) -> str:
        return f"peak {self.peak:.0f} MiB ({self.before:.0f} before)"


@contextmanager
def peak_memory(where: str | None = None) -> Iterator[Memory]:
    """Measures the peak memory of a block.

    Args:
        where: cuda or cpu; if not given, the device that models are on.
    """
    if (where or device()) == "cuda":
        torch.cuda.reset_peak_memory_stats()
        memory = Memory(torch.cuda.memory_allocated() / 2**20)
        yield memory
        memory.peak = torch.cuda.max_memory_allocated() / 2**20
    else:
        ctypes.CDLL(None).malloc_trim(0)  # memory that was freed before the block is not counted
        Path("/proc/self/clear_refs").write_text("5")  # sets the peak back
        memory = Memory(_mebibytes("VmRSS"))
        yield memory
        memory.peak = _mebibytes("VmHWM")


def _mebibytes(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def alternate(trials: Mapping[str, Callable[[], Result]], rounds: int) -> dict[str, list[Result]]:
    """Runs every trial once a round. Ratios within a round hold also on a machine whose speed varies."""
    results: dict[str, list[Result]] = {name: [] for name in trials}
    for _ in range(rounds):
        for name, trial in trials.items():
            results[name].append(trial())
    return results


def in_new_process(step: Callable[[], Result]) -> Result:
    """What a step returns. It runs in a process of its own, so that it does not begin with the memory of another."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(step).result()


def markdown_table(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table in Markdown.

    Args:
        columns: the format of each column by its name, empty for text.

    >>> print(markdown_table({"variant": "", "seconds": ".1f"}, [{"variant": "padded", "seconds": 2.55}]))
    | variant | seconds |
    |:---|---:|
    | padded | 2.5 |
    <BLANKLINE>
    """
    lines = [list(columns), *([format(row[name], columns[name]) for name in columns] for row in rows)]
    written = ["| " + " | ".join(line) + " |" for line in lines]
    written.insert(1, "|" + "".join("---:|" if columns[name] else ":---|" for name in columns))
    return "\n".join(written) + "\n"


def write_results(benchmark: Any, markdown: str, **results: Any) -> None:
    """Shows the tables, and writes them to results.md and all numbers, with the options and the machine, to
    results.json.

    Args:
        benchmark: the options, a dataclass with a folder `output`.
    """
    print(markdown)
    write_text(Path(benchmark.output) / "results.md", markdown)
    content = {"recipe": asdict(benchmark), "environment": environment(), **results}
    write_json(Path(benchmark.output) / "results.json", content)
