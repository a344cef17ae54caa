"""How fast systems of an evaluation encode documents, and how much memory it takes.

    python -m benchmarks.encode --config configuration/benchmarks/encode.yaml --documents FOLDER [--key value ...]

From texts to vectors, tokenization included. The systems alternate over several rounds; a number is the median over the
rounds, a ratio the median ratio within a round. Writes results.json, with recipe and machine, and results.md, the
tables.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import hmde.common.threads

import torch

from benchmarks.measure import alternate, peak_memory, timed, write_results
from evaluation.recipes import SystemOptions
from evaluation.systems import System, check_systems, load_system
from evaluation.tables import Table
from hmde.common.command_line import options_from, run
from hmde.common.device import Dtype, dtype_of
from hmde.common.numbers import NonNegativeInt, PositiveInt
from hmde.documents.documents import Document, Documents
from modeling_hmde.segmentation_hmde import sentence_spans

Length = Literal["short", "mixed", "long"]


@dataclass
class EncodingSystem(SystemOptions):
    """A system of a kind that has a vector of each document."""

    kind: Literal["hmde", "first", "windows", "sentences", "passages"]


@dataclass
class EncodeBenchmark:
    """Compare systems by the time and the memory that encoding takes them."""

    documents: str
    """Folder of article tables, <language>.parquet or .jsonl, with a column `text`."""

    systems: dict[str, EncodingSystem]
    """By name, each with its `kind` and the options of that kind; see evaluation/registry.py. Times are compared with
    that of the first."""

    output: str
    """Folder to write."""

    lengths: list[Length] = field(default_factory=lambda: ["short", "mixed", "long"])
    """Documents measured: `short`, the shortest quarter; `long`, the longest; `mixed`, all."""

    num_documents: PositiveInt = 48
    """Documents of each length, drawn by a fixed seed."""

    max_sentences: PositiveInt = 32
    """Each document is cut to so many, for all systems."""

    dtype: Dtype = "auto"
    """The dtype of weights and activations; auto is bfloat16 where the hardware has it."""

    rounds: PositiveInt = 3
    """Trials of each system."""

    threads: NonNegativeInt = 0
    """CPU threads; 0 for PyTorch's default."""


class Trial(NamedTuple):
    """One measurement of one system."""

    seconds: float
    cpu_seconds: float
    memory: float  # MiB above what was held before


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(EncodeBenchmark, argv)
    if benchmark.threads:
        torch.set_num_threads(benchmark.threads)
    check_systems(benchmark.systems)
    documents = read_documents(Path(benchmark.documents))
    drawn = {length: draw(documents, length, benchmark) for length in benchmark.lengths}
    dtype = dtype_of(benchmark.dtype)
    systems = {name: load_system(options, dtype) for name, options in benchmark.systems.items()}
    for system in systems.values():
        encode(system, documents[:1])  # the first call takes longer
    trials = {
        length: alternate({name: partial(trial, system, texts) for name, system in systems.items()}, benchmark.rounds)
        for length, texts in drawn.items()
    }
    numbers = {
        length: {name: [one._asdict() for one in all_] for name, all_ in by_name.items()}
        for length, by_name in trials.items()
    }
    tables = [table.to_markdown() for table in tables_of(trials, benchmark.num_documents, str(dtype))]
    write_results(benchmark, "\n".join(tables), trials=numbers)


def encode(system: System, documents: Sequence[Document]) -> None:
    """Encode documents, those of a language together."""
    by_language: dict[str, list[str]] = {}
    for document in documents:
        by_language.setdefault(document.language or "", []).append(document.text)
    for language, texts in by_language.items():
        system.encode_documents(texts, language)


def trial(system: System, documents: Sequence[Document]) -> Trial:
    with peak_memory() as memory, timed() as taken:
        encode(system, documents)
    return Trial(taken.seconds, taken.cpu_seconds, memory.peak - memory.before)


def tables_of(trials: Mapping[str, Mapping[str, Sequence[Trial]]], num_documents: int, dtype: str) -> list[Table]:
    """
    Args:
        trials: by length of documents and system, in the order of the rounds.
    """

    def table(title: str, value: Callable[[Trial, Trial], float]) -> Table:
        """The median over the rounds of `value(trial, trial of the first system in the same round)`."""
        scores: dict[str, dict[str, float]] = {}
        for length, by_system in trials.items():
            first = next(iter(by_system.values()))
            for name, own in by_system.items():
                scores.setdefault(name, {})[length] = statistics.median(map(value, own, first))
        return Table(f"{title}, {dtype.removeprefix('torch.')}", "documents", scores)

    return [
        table("Documents a second", lambda trial, _: num_documents / trial.seconds),
        table("How many times as long as the first", lambda trial, first: trial.seconds / first.seconds),
        table("Milliseconds of CPU time a document", lambda trial, _: 1000 * trial.cpu_seconds / num_documents),
        table("MiB above the model", lambda trial, _: trial.memory),
    ]


def read_documents(folder: Path) -> list[Document]:
    """All documents of a folder of article tables, shuffled by a fixed seed.

    Raises:
        ValueError: there is no table in it, or one without a column `text`.
    """
    files = sorted([*folder.glob("*.parquet"), *folder.glob("*.jsonl")])
    if not files:
        raise ValueError(f"{folder} has no <language>.parquet or <language>.jsonl; give a folder of article tables")
    documents = [document for file in files for document in Documents(file, language=file.stem)]
    random.Random(0).shuffle(documents)
    return documents


def draw(documents: Sequence[Document], length: Length, benchmark: EncodeBenchmark) -> list[Document]:
    """Documents of a length, each cut to its first sentences."""
    by_length = sorted(documents, key=lambda document: len(document.text))
    quarter = len(by_length) // 4
    among = {"short": by_length[:quarter], "mixed": by_length, "long": by_length[-quarter:]}[length]
    if len(among) < benchmark.num_documents:
        raise ValueError(
            f"num_documents is {benchmark.num_documents}, but only {len(among)} are {length}; ask for fewer"
        )
    cut = []
    for document in random.Random(0).sample(among, benchmark.num_documents):
        spans = islice(sentence_spans(document.text, document.language), benchmark.max_sentences)
        cut.append(replace(document, text=document.text[: max(end for _, end in spans)]))
    return cut


if __name__ == "__main__":
    run(main)
