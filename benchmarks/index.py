"""How long an index of many short documents takes to make and to query, in what memory, and what a question misses.

    python -m benchmarks.index --documents 1000000 --output runs/index-benchmark

The vectors are random, so what is measured is the index without the model. A document has twelve words and a question
five, of a vocabulary of 50,000, drawn so that the word of rank n comes about 1 / n times as often as the first. One
document in ten is German. The vectors lie as those of real texts do: around a direction common to all and, near to it,
around 4,096 subjects, that of rank n with about 1 / n times as many documents as the first; the variance of dimension k
is in proportion to k ** -0.75, and two fifths of it are the subject's, the rest the document's own. A question is drawn
as a document is.

Before documents are added, a question is compared with every vector, and afterwards as search/index.py does with many.
Recall is the share of the ten documents nearest among all that are among the ten found. With `--sentences`, so many
vectors of sentences are kept of each document, and the ranking by these is timed too. Making and querying run in
processes of their own, and so have peaks of memory of their own. Processor time is less disturbed than the clock where
other programs run beside this one. Linux only.
"""

from __future__ import annotations

import math
import resource
import shutil
import statistics
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch
from jsonargparse import auto_cli

import search.index
from modeling_hmde.attribution_hmde import DocumentSentences, Scoring
from search.documents import Document
from search.index import ROWS_PER_BATCH, Encoder, Index, Ranking, open_index, update_index

HIDDEN, WORDS, QUESTION_WORDS, VOCABULARY, SUBJECTS, BLOCK, HITS = 384, 12, 5, 50_000, 4096, 1024, 10
RANKINGS = get_args(Ranking)
SHARED = 0.4  # of a vector's variance, with its subject
VARIANCES = np.arange(1, HIDDEN + 1) ** -0.75
VARIANCES /= VARIANCES.sum()


class RandomEncoder(Encoder):
    """Vectors of unit length that depend on the id of the first document or on the question. `model.num_sentences` is
    the number of sentences of each document."""

    def encode(self, documents: Sequence[Document]) -> np.ndarray:
        return random_vectors(len(documents), seed=[0, int(documents[0].id)])

    def encode_questions(self, questions: Sequence[str]) -> np.ndarray:
        return np.concatenate([random_vectors(1, seed=[1, zlib.crc32(question.encode())]) for question in questions])

    def encode_sentences(self, documents: Sequence[Document], scoring: Scoring) -> list[DocumentSentences]:
        count: Any = self.model.num_sentences
        vectors = random_vectors(len(documents) * count, seed=[2, int(documents[0].id)]).reshape(-1, count, HIDDEN)
        return [
            DocumentSentences([(0, len(document.text))] * count, torch.from_numpy(of_document), None)
            for document, of_document in zip(documents, vectors)
        ]

    def probe(self) -> np.ndarray:
        return np.eye(1, HIDDEN + 2)[0]


@dataclass
class RandomDocuments:
    """A number of documents, made anew at each iteration."""

    count: int

    def __iter__(self) -> Iterator[Document]:
        for first in range(0, self.count, BLOCK):
            for number, text in enumerate(random_texts(min(BLOCK, self.count - first), WORDS, seed=first), first):
                yield Document(str(number), f"Document {number}", "en" if number % 10 else "de", text)


def random_ranks(number: int, size: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Of `number`, from 1 on; n comes about 1 / n times as often as 1."""
    # The inverse of the distribution function of 1 / n is an exponential function.
    return (number ** generator.random(size)).astype(int)


def random_texts(count: int, words: int, seed: int) -> list[str]:
    ranks = random_ranks(VOCABULARY, (count, words), np.random.default_rng(seed))
    return [" ".join(f"w{rank}" for rank in row) for row in ranks]


@cache
def subjects() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((SUBJECTS, HIDDEN), np.float32)


def random_vectors(count: int, seed: list[int]) -> np.ndarray:
    """(count, HIDDEN), float32, of unit length."""
    generator = np.random.default_rng(seed)
    own = generator.standard_normal((count, HIDDEN), np.float32)
    around = subjects()[random_ranks(SUBJECTS, (count,), generator) - 1]
    scattered = (math.sqrt(1 - SHARED) * own + math.sqrt(SHARED) * around) * np.sqrt(VARIANCES, dtype=np.float32)
    vectors = scattered + HIDDEN**-0.5  # the common direction is the diagonal
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def encoder(num_sentences: int = 0) -> Encoder:
    config = SimpleNamespace(hidden_size=HIDDEN, document_pooling="mean")
    tokenizer: Any = None
    model: Any = SimpleNamespace(config=config, num_sentences=num_sentences)
    return RandomEncoder("random", model, tokenizer)


def peak_memory() -> float:
    """MiB of this process, at most, until now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def make(folder: Path, documents: int, sentences: int) -> str:
    search.index.APPROXIMATE_FROM = documents + 1
    before, began = peak_memory(), time.perf_counter()
    update_index(folder, RandomDocuments(documents), encoder(sentences), sentences=sentences > 0)
    seconds = time.perf_counter() - began
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20
    return f"making    {seconds:8.0f} s     peak {peak_memory():.0f} MiB ({before:.0f} before), disk {size:.0f} MiB"


def update(folder: Path, documents: int, sentences: int) -> str:
    before, began = peak_memory(), time.perf_counter()
    changes = update_index(folder, RandomDocuments(documents + BLOCK), encoder(sentences))
    seconds = time.perf_counter() - began
    return f"adding {changes.added} {seconds:6.0f} s     peak {peak_memory():.0f} MiB ({before:.0f} before)"


def query(folder: Path, ranking: Ranking, languages: list[str] | None, queries: int) -> str:
    before = peak_memory()
    seconds: list[float] = []
    busy: list[float] = []
    for question in random_texts(queries + 1, QUESTION_WORDS, seed=1):
        began, worked = time.perf_counter(), time.process_time()
        if not seconds:
            index = open_index(folder)
        index.documents(list(index.rank(question, encoder(), ranking, HITS, languages)))
        seconds.append(time.perf_counter() - began)
        busy.append(time.process_time() - worked)
    first, *others = (1000 * number for number in seconds)
    times = (
        f"{statistics.median(others):8.0f} ms    of the processor {1000 * statistics.median(busy[1:]):.0f} ms, "
        f"slowest {max(others):.0f} ms, first, with opening, {first:.0f} ms"
    )
    asked = " ".join([ranking, *(languages or ())])
    return f"{asked:9} {times}, peak {peak_memory():.0f} MiB ({before:.0f} before)"


def recall(folder: Path, languages: list[str] | None, queries: int) -> str:
    index = open_index(folder)
    questions = random_texts(queries, QUESTION_WORDS, seed=1)
    vectors = encoder().encode_questions(questions)
    expected = nearest(index, vectors, languages)
    found = [index.rank(question, encoder(), "vector", HITS, languages) for question in questions]
    share = sum(len({*ids} & {*scores}) for ids, scores in zip(expected, found)) / expected.size
    asked = " ".join(["recall", *(languages or ())])
    return f"{asked:9} {share:8.3f} of the {HITS} nearest, {queries} questions"


def nearest(index: Index, vectors: np.ndarray, languages: list[str] | None) -> np.ndarray:
    """(questions, HITS), the ids of the documents nearest to each vector, which is compared with all of them."""
    cosines = np.empty((len(vectors), 0), np.float32)
    ids = np.empty((len(vectors), 0), object)
    kept = index.table.search().select(["id", "language", "vector"])
    for batch in kept.to_batches(ROWS_PER_BATCH):
        if languages is not None:
            batch = batch.filter(pa.compute.is_in(batch["language"], pa.array(languages)))
        stored = batch["vector"].flatten().to_numpy().reshape(-1, HIDDEN)
        names = batch["id"].to_numpy(zero_copy_only=False)
        cosines = np.hstack([cosines, vectors @ stored.T])
        ids = np.hstack([ids, np.broadcast_to(names, (len(vectors), len(names)))])
        best = np.argpartition(-cosines, HITS - 1)[:, :HITS]
        cosines, ids = (np.take_along_axis(values, best, axis=1) for values in (cosines, ids))
    return ids


def main(documents: int = 100_000, queries: int = 20, sentences: int = 0, output: str = "runs/index-benchmark") -> None:
    """Make an index of random vectors and query it.

    Args:
        documents: in the index, 100 at least.
        queries: of each ranking, after a first one; ten times as many for recall.
        sentences: of each document; if there are any, their vectors are kept and `late` is timed.
        output: a folder to write, which must not exist; it is removed at the end.
    """
    folder = Path(output)
    if folder.exists():
        raise ValueError(f"output {folder} exists; name a folder that does not, since it is removed at the end")
    print(f"{documents} documents, {HIDDEN} dimensions")
    compared_with_all = partial(query, folder, "vector", None, queries)
    in_german = partial(query, folder, "vector", ["de"], queries)
    ranked = RANKINGS if sentences else [ranking for ranking in RANKINGS if ranking != "late"]  # which asks the model
    rankings = [partial(query, folder, ranking, None, queries) for ranking in ranked]
    recalls = [partial(recall, folder, languages, 10 * queries) for languages in (None, ["de"])]
    make_and_add = [
        partial(make, folder, documents, sentences),
        compared_with_all,
        partial(update, folder, documents, sentences),
    ]
    for step in (*make_and_add, *rankings, in_german, *recalls):
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            print(process.submit(step).result(), flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
