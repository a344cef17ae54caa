"""How long a question to an index takes: by the command, from start to end, alone or asking a server; and in a process.

    python -m benchmarks.question --index my-index

Other programs disturb CPU time less than the clock, and on idle cores the clock shows little more. The command runs as
a user runs it, with this Python. Its time includes packages that are installed beside those of the extra `search`, such
as scipy, because transformers imports them too.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from dataclasses import dataclass

import common.threads

from benchmarks.measure import Time, timed
from benchmarks.server import served
from common.command_line import options_from, run
from common.numbers import PositiveInt
from evaluation.tables import environment
from search.index import Index

QUESTION = "Why does the tail of a comet always point away from the Sun?"


@dataclass
class QuestionBenchmark:
    """Ask one question many times."""

    index: str
    """The folder of an index."""
    rounds: PositiveInt = 5
    """Questions of each kind."""


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(QuestionBenchmark, argv)
    print(environment())
    report("import torch", [time_of_command(["-c", "import torch"]) for _ in range(benchmark.rounds)])
    imports = "from common.quick_imports import quick_imports\nwith quick_imports(): import search.index"
    report("all imports", [time_of_command(["-c", imports]) for _ in range(benchmark.rounds)])
    report("the command", [time_of_question(benchmark.index) for _ in range(benchmark.rounds)])
    with served(["-m", "search", "serve", benchmark.index, "--port"]) as address:
        time_of_question(address)  # the first takes longer
        report("asking a server", [time_of_question(address) for _ in range(benchmark.rounds)])

    index = Index(benchmark.index)
    index.search(QUESTION)  # the first call takes longer
    times = []
    for _ in range(benchmark.rounds):
        with timed() as taken:
            index.search(QUESTION)
        times.append(taken)
    report("in a process", times)


def time_of_question(index: str) -> Time:
    return time_of_command(["-m", "search", "query", index, QUESTION])


def time_of_command(arguments: list[str]) -> Time:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with timed() as taken:
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken.cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return taken


def report(name: str, times: list[Time]) -> None:
    clock, cpu = (statistics.median(values) for values in zip(*((time.seconds, time.cpu_seconds) for time in times)))
    print(f"{name:15} {clock:7.3f} s    CPU time {cpu:.3f} s, fastest {min(time.seconds for time in times):.3f} s")


if __name__ == "__main__":
    run(main)
