"""How long encoding takes if waiting threads spin briefly, spin long or sleep, on idle cores and beside busy programs.

    python -m benchmarks.threads --model runs/hmde-small --documents sample/docs

`short` is how every command here runs (common/threads.py): a thread spins for a fraction of a millisecond before it
sleeps. `sleeping` threads do not spin, and `spinning` ones spin as long as OpenMP's default says. Each trial is a new
process, because OpenMP reads its policy once. Trials alternate over several rounds; a ratio is the median of the ratios
to `short` within a round. There are as many busy programs as cores. Cores may not be quite idle, so the table also has
how many of them other programs used during the trials. Linux only.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import common.threads

from benchmarks.measure import alternate, in_new_process, markdown_table, median_ratio, timed
from common.command_line import options_from, run
from common.numbers import PositiveInt
from evaluation.tables import environment
from search.documents import Documents
from search.encoder import Encoder

# How often a thread looks for work before it sleeps; the last is GNU OpenMP's own, if nothing is set.
SPINS = {"short": common.threads.SPIN_COUNT, "sleeping": "0", "spinning": "300000"}
QUESTION = "Why does the tail of a comet always point away from the Sun?"


@dataclass
class ThreadsBenchmark:
    """Compare threads that spin briefly with threads that sleep and threads that spin."""

    model: str
    """Folder or Hub name of an HMDE."""
    documents: str
    """Documents that are encoded, as `python -m search index` reads them."""
    num_documents: PositiveInt = 16
    """The first of them, encoded together."""
    num_questions: PositiveInt = 20
    """Questions, encoded one after another."""
    rounds: PositiveInt = 5
    """Trials of each kind."""


class Trial(NamedTuple):
    """Seconds for all documents and for one question, and how many cores other programs used meanwhile."""

    documents: float
    question: float
    busy_cores: float


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(ThreadsBenchmark, argv)
    print(environment(), flush=True)
    rows = []
    for num_programs in (0, len(os.sched_getaffinity(0))):
        with busy_programs(num_programs):
            trials = alternate({name: partial(trial_of, name, benchmark) for name in SPINS}, benchmark.rounds)
        for what in ("documents", "question"):
            seconds = {name: [getattr(trial, what) for trial in measured] for name, measured in trials.items()}
            row = {name: 1000 * statistics.median(values) for name, values in seconds.items()}
            ratios = {
                f"{name}/short": median_ratio(seconds[name], seconds["short"]) for name in SPINS if name != "short"
            }
            elsewhere = statistics.median(trial.busy_cores for measured in trials.values() for trial in measured)
            named = {"busy programs": num_programs, "milliseconds": what}
            rows.append(named | row | ratios | {"cores of others": elsewhere})
    columns = {"busy programs": "d", "milliseconds": "", **dict.fromkeys(SPINS, ".1f")}
    columns |= dict.fromkeys(ratios, ".2f") | {"cores of others": ".1f"}
    print(markdown_table(columns, rows))


def trial_of(name: str, benchmark: ThreadsBenchmark) -> Trial:
    os.environ["GOMP_SPINCOUNT"] = SPINS[name]  # stands above OMP_WAIT_POLICY
    return in_new_process(partial(trial, benchmark))


def trial(benchmark: ThreadsBenchmark) -> Trial:
    documents = list(Documents(Path(benchmark.documents)))[: benchmark.num_documents]
    encoder = Encoder.load(benchmark.model)
    encoder.encode(documents)  # the first call takes longer
    encoder.encode_queries([QUESTION])
    before = busy_seconds()
    with timed() as all_taken:
        with timed() as documents_taken:
            encoder.encode(documents)
        seconds = []
        for _ in range(benchmark.num_questions):
            with timed() as taken:
                encoder.encode_queries([QUESTION])
            seconds.append(taken.seconds)
    others = (busy_seconds() - before - all_taken.cpu_seconds) / all_taken.seconds
    return Trial(documents_taken.seconds, statistics.median(seconds), others)


def busy_seconds() -> float:
    """CPU time of all programs of this machine since it was started."""
    user, nice, system, *_ = map(int, Path("/proc/stat").read_text().split()[1:5])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


@contextmanager
def busy_programs(number: int) -> Iterator[list[subprocess.Popen]]:
    """Programs that compute without end, each on one core, while the block runs."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield programs
    finally:
        for program in programs:
            program.kill()
            program.wait()


if __name__ == "__main__":
    run(main)
