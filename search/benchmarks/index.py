"""How long an index of many short documents takes to make and to query, and in what memory.

    python -m search.benchmarks.index --documents 1000000 --output runs/index-benchmark

The vectors are random, so what is measured is the index without the model. A document has twelve words and a question
five, of a vocabulary of 50,000, drawn so that the word of rank n comes about 1 / n times as often as the first. Before
documents are added, a question is compared with every vector, and afterwards as search/index.py does with many. Making
and querying run in processes of their own, and so have peaks of memory of their own. Processor time is less disturbed
than the clock where other programs run beside this one. Linux only.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
from jsonargparse import auto_cli

import search.index
from search.documents import Document
from search.index import Encoder, Ranking, open_index, update_index

HIDDEN, WORDS, VOCABULARY, BLOCK = 384, 12, 50_000, 1024
RANKINGS = [ranking for ranking in get_args(Ranking) if ranking != "late"]  # which asks the model


class RandomEncoder(Encoder):
    """Vectors of unit length that depend on a document's id or on the question."""

    def encode(self, documents: Sequence[Document]) -> np.ndarray:
        vectors = np.random.default_rng(int(documents[0].id)).standard_normal((len(documents), HIDDEN), np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def encode_questions(self, questions: Sequence[str]) -> np.ndarray:
        return np.concatenate(
            [self.encode([Document(str(len(question)), "", None, question)]) for question in questions]
        )

    def probe(self) -> np.ndarray:
        return np.eye(1, HIDDEN + 2)[0]


@dataclass
class RandomDocuments:
    """A number of documents, made anew at each iteration."""

    count: int

    def __iter__(self) -> Iterator[Document]:
        for first in range(0, self.count, BLOCK):
            for number, text in enumerate(random_texts(min(BLOCK, self.count - first), WORDS, seed=first), first):
                yield Document(str(number), f"Document {number}", "en", text)


def random_texts(count: int, words: int, seed: int) -> list[str]:
    # The inverse of the distribution function of 1 / n is an exponential function.
    ranks = VOCABULARY ** np.random.default_rng(seed).random((count, words))
    return [" ".join(f"w{int(rank)}" for rank in row) for row in ranks]


def encoder() -> Encoder:
    config = SimpleNamespace(hidden_size=HIDDEN, document_pooling="mean")
    tokenizer: Any = None
    model: Any = SimpleNamespace(config=config)
    return RandomEncoder("random", model, tokenizer)


def peak_memory() -> float:
    """MiB of this process, at most, until now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def make(folder: Path, documents: int) -> str:
    search.index.APPROXIMATE_FROM = documents + 1
    before, began = peak_memory(), time.perf_counter()
    update_index(folder, RandomDocuments(documents), encoder())
    seconds = time.perf_counter() - began
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20
    return f"making    {seconds:8.0f} s     peak {peak_memory():.0f} MiB ({before:.0f} before), disk {size:.0f} MiB"


def update(folder: Path, documents: int) -> str:
    before, began = peak_memory(), time.perf_counter()
    changes = update_index(folder, RandomDocuments(documents + BLOCK), encoder())
    seconds = time.perf_counter() - began
    return f"adding {changes.added} {seconds:6.0f} s     peak {peak_memory():.0f} MiB ({before:.0f} before)"


def query(folder: Path, ranking: Ranking, queries: int) -> str:
    before = peak_memory()
    seconds: list[float] = []
    busy: list[float] = []
    for question in random_texts(queries + 1, 5, seed=1):
        began, worked = time.perf_counter(), time.process_time()
        if not seconds:
            index = open_index(folder)
        index.documents(list(index.rank(question, encoder(), ranking, 10)))
        seconds.append(time.perf_counter() - began)
        busy.append(time.process_time() - worked)
    first, *others = (1000 * number for number in seconds)
    times = (
        f"{statistics.median(others):8.0f} ms    of the processor {1000 * statistics.median(busy[1:]):.0f} ms, "
        f"slowest {max(others):.0f} ms, first, with opening, {first:.0f} ms"
    )
    return f"{ranking:9} {times}, peak {peak_memory():.0f} MiB ({before:.0f} before)"


def main(documents: int = 100_000, queries: int = 20, output: str = "runs/index-benchmark") -> None:
    """Make an index of random vectors and query it.

    Args:
        documents: in the index.
        queries: of each ranking, after a first one.
        output: a folder to write, which must not exist; it is removed at the end.
    """
    folder = Path(output)
    if folder.exists():
        raise ValueError(f"output {folder} exists; name a folder that does not, since it is removed at the end")
    print(f"{documents} documents, {HIDDEN} dimensions")
    compared_with_all = partial(query, folder, "vector", queries)
    rankings = [partial(query, folder, ranking, queries) for ranking in RANKINGS]
    for step in (partial(make, folder, documents), compared_with_all, partial(update, folder, documents), *rankings):
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            print(process.submit(step).result(), flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
