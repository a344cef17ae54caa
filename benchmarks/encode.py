"""How fast documents are encoded, which share of the CPU's or GPU's peak that reaches, and how much memory it takes.

    python -m benchmarks.encode --documents FOLDER --encoder runs/e5-small --output runs/benchmark

From texts to vectors, tokenization included. benchmarks/encoding_methods.py describes the methods, which share one
sentence encoder and dtype. They alternate over several rounds; a number is the median over the rounds, a ratio the
median ratio within a round. Writes results.json, with recipe and machine, and results.md, the tables.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

import hmde.common.threads

import torch

from benchmarks.encoding_methods import POOLINGS_OF_PADDED, Method, MethodName, Setting, load_method
from benchmarks.measure import alternate, matmul_peak, peak_memory, timed, write_results
from evaluation.tables import Table, environment
from hmde.common.command_line import options_from, run
from hmde.common.device import Dtype, dtype_of
from hmde.common.numbers import NonNegativeInt, PositiveInt
from hmde.documents.documents import Document, Documents
from modeling_hmde.configuration_hmde import SentencePooling
from modeling_hmde.segmentation_hmde import sentence_spans

Kind = Literal["short", "mixed", "long"]


@dataclass
class EncodeBenchmark:
    """Compare methods of encoding documents."""

    documents: str
    """Folder of article tables, <language>.parquet or .jsonl, with a column `text`."""

    encoder: str
    """Folder or Hub name of the sentence encoder."""

    output: str
    """Folder to write."""

    pooling: SentencePooling = "mean"
    """How a sentence vector is read from the encoder."""

    document_prompt: str = "passage: "
    """Put before each sentence, window or document."""

    kinds: list[Kind] = field(default_factory=lambda: ["short", "mixed", "long"])
    """Documents measured: `short`, the shortest quarter; `long`, the longest; `mixed`, all."""

    num_documents: PositiveInt = 48
    """Documents of each kind, drawn by a fixed seed."""

    max_sentences: PositiveInt = 32
    """Each document is cut to so many, for all methods."""

    sentences: list[PositiveInt] = field(default_factory=lambda: [1, 8, 32, 128, 512])
    """Numbers of sentences of single documents, which are measured too; `flat` reads 4,096 tokens of each."""

    methods: list[MethodName] = field(default_factory=lambda: ["hmde", "passages", "padded", "windows", "flat"])
    """Methods that are compared, hmde among them."""

    dtype: Dtype = "auto"
    """The dtype of weights and activations; auto is bfloat16 where the hardware has it."""

    batch_size: PositiveInt = 32
    """Documents together in `padded`, windows together in `windows`: sentence-transformers' default."""

    rounds: PositiveInt = 3
    """Trials of each method."""

    threads: NonNegativeInt = 0
    """CPU threads; 0 for PyTorch's default."""

    def __post_init__(self) -> None:
        if "hmde" not in self.methods:
            raise ValueError(f"methods is {self.methods}; the others are compared with hmde, so name it too")
        if not self.sentences:
            raise ValueError("sentences is empty; name at least one number, such as 1")
        if self.pooling not in POOLINGS_OF_PADDED and any(name.startswith("padded") for name in self.methods):
            poolings = ", ".join(POOLINGS_OF_PADDED)
            raise ValueError(f"pooling is {self.pooling}, and padded knows {poolings} only; leave it out of methods")


@dataclass
class Trial:
    """One measurement of one method."""

    seconds: float
    tokens: int
    utilisation: float  # operations a second, without padding, over the peak measured just before
    memory: float  # MiB above what was held before


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(EncodeBenchmark, argv)
    if benchmark.threads:
        torch.set_num_threads(benchmark.threads)
    print(environment())
    documents = read_documents(Path(benchmark.documents))
    sets = {kind: draw(documents, kind, benchmark) for kind in benchmark.kinds}
    sets |= {str(count): [first_sentences(documents, count)] for count in benchmark.sentences}
    setting = Setting(
        encoder=benchmark.encoder,
        dtype=dtype_of(benchmark.dtype),
        pooling=benchmark.pooling,
        document_prompt=benchmark.document_prompt,
        max_sentences=max(benchmark.max_sentences, *benchmark.sentences),
        batch_size=benchmark.batch_size,
    )
    with torch.no_grad():
        methods: dict[str, Method] = {name: load_method(name, setting) for name in benchmark.methods}
        for method in methods.values():
            method.encode(sets[str(min(benchmark.sentences))])  # the first call takes longer
        trials = measure(methods, sets, benchmark.rounds)
        kinds = benchmark.kinds if "padded" in methods else []
        cosines = {kind: lowest_cosine(methods["hmde"], methods["padded"], sets[kind]) for kind in kinds}
    results = {
        "lowest_cosine_to_padded": cosines,
        "trials": {
            name: {row: list(map(asdict, measured)) for row, measured in rows.items()} for name, rows in trials.items()
        },
    }
    write_results(benchmark, "\n".join(table.to_markdown() for table in tables(trials, benchmark)), **results)
    if cosines:
        print(f"Lowest cosine of hmde and padded: {min(cosines.values()):.6f}")


def measure(
    methods: dict[str, Method], sets: dict[str, list[Document]], rounds: int
) -> dict[str, dict[str, list[Trial]]]:
    """By method and set of documents, the trials in the order of the rounds."""
    by_set = {
        row: alternate({name: partial(trial, method, documents) for name, method in methods.items()}, rounds)
        for row, documents in sets.items()
    }
    return {name: {row: trials[name] for row, trials in by_set.items()} for name in methods}


def trial(method: Method, documents: Sequence[Document]) -> Trial:
    peak = matmul_peak(method.dtype)
    tokens, operations = method.work(documents)
    with peak_memory() as memory, timed() as taken:
        method.encode(documents)
    return Trial(taken.seconds, tokens, operations / taken.seconds / peak, memory.peak - memory.before)


def tables(trials: dict[str, dict[str, list[Trial]]], benchmark: EncodeBenchmark) -> list[Table]:
    kinds, lengths = benchmark.kinds, [str(count) for count in benchmark.sentences]
    dtype = str(dtype_of(benchmark.dtype)).removeprefix("torch.")

    def table(title: str, row_name: str, rows: Sequence[str], value: Callable[[Trial, Trial], float]) -> Table:
        """The median over the rounds of `value(trial, trial of hmde in the same round)`."""
        scores = {
            name: {row: statistics.median(map(value, measured[row], trials["hmde"][row])) for row in rows}
            for name, measured in trials.items()
        }
        return Table(f"{title}, {dtype} where a name does not say float32", row_name, scores)

    return [
        table("Documents a second", "documents", kinds, lambda trial, _: benchmark.num_documents / trial.seconds),
        table("How many times as long as hmde", "documents", kinds, lambda trial, hmde: trial.seconds / hmde.seconds),
        table("Thousand tokens a second", "documents", kinds, lambda trial, _: trial.tokens / trial.seconds / 1000),
        table("Share of the matrix multiplication peak", "documents", kinds, lambda trial, _: trial.utilisation),
        table("MiB above the model", "documents or sentences", [*kinds, *lengths], lambda trial, _: trial.memory),
        table("Milliseconds of one document", "sentences", lengths, lambda trial, _: 1000 * trial.seconds),
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


def draw(documents: Sequence[Document], kind: Kind, benchmark: EncodeBenchmark) -> list[Document]:
    """Documents of a kind, each cut to its first sentences."""
    by_length = sorted(documents, key=lambda document: len(document.text))
    quarter = len(by_length) // 4
    among = {"short": by_length[:quarter], "mixed": by_length, "long": by_length[-quarter:]}[kind]
    if len(among) < benchmark.num_documents:
        raise ValueError(f"num_documents is {benchmark.num_documents}, but only {len(among)} are {kind}; ask for fewer")
    cut = []
    for document in random.Random(0).sample(among, benchmark.num_documents):
        spans = islice(sentence_spans(document.text, document.language), benchmark.max_sentences)
        cut.append(replace(document, text=document.text[: max(end for _, end in spans)]))
    return cut


def first_sentences(documents: Sequence[Document], count: int) -> Document:
    """One document of so many sentences, one a line, which are those of several documents.

    Raises:
        ValueError: the documents have fewer sentences that are one sentence by the rules of English, too.
    """
    texts = (
        document.text[begin:end]
        for document in documents
        for begin, end in sentence_spans(document.text, document.language)
    )
    sentences = list(islice((text for text in texts if len(list(sentence_spans(text, "en"))) == 1), count))
    if len(sentences) < count:
        raise ValueError(f"sentences has {count}, but the documents have only {len(sentences)}; ask for fewer")
    return Document("", "", "en", "\n".join(sentences))


def lowest_cosine(method: Method, other: Method, documents: Sequence[Document]) -> float:
    return float((method.encode(documents) * other.encode(documents)).sum(axis=1).min())


if __name__ == "__main__":
    run(main)
