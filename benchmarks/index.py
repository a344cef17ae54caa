"""How long an index of many short documents takes to make and to query, its peak memory, and its recall.

    python -m benchmarks.index --documents 1000000 --output runs/index-benchmark

The vectors are random, so the index is measured without the model. A document has twelve words and a question five,
drawn from a vocabulary of 50,000 by Zipf's law: the word of rank n comes about 1 / n times as often as the first. One
document in ten is German. The vectors are distributed as those of real texts are: all lie around one common direction,
and near to it around 4,096 subjects, whose numbers of documents follow Zipf's law too. The variance of dimension k is
proportional to k ** -0.75; two fifths of it belong to the subject, the rest to the document. Questions are drawn as
documents are.

The first search compares a question with every vector; the later ones use the approximate index. Recall is the share of
the ten nearest documents that are among the ten found. With `--sentences`, so many sentence vectors of each document
are stored, cut to `--sentence_size`; half of each is the document's vector, the rest its own. Then the ranking `late`
is timed too, beside an exact ranking of all documents by the same score. Making and querying run in processes of their
own, so each has its own peak memory. CPU time is less disturbed by other programs than the clock. Linux only.
"""

from __future__ import annotations

import math
import shutil
import statistics
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import hmde.common.threads

import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch

import hmde.index.update
from benchmarks.measure import Time, in_new_process, peak_memory, timed
from hmde.commands.options import Ranking
from hmde.common.command_line import options_from, run
from hmde.common.numbers import NonNegativeInt, PositiveInt
from hmde.documents.documents import Document
from hmde.index.encoder import Encoder, cut
from hmde.index.ranking import rank
from hmde.index.snapshot import CODE_COLUMNS, ROWS_PER_BATCH, Snapshot, open_snapshot
from hmde.index.update import update_index
from modeling_hmde import late_score
from modeling_hmde.attribution_hmde import DocumentSentences

HIDDEN, WORDS, QUESTION_WORDS, VOCABULARY, SUBJECTS, BLOCK, HITS = 384, 12, 5, 50_000, 4096, 1024, 10
RANKINGS = get_args(Ranking)
SHARED = 0.4  # of a vector's variance, with its subject
VARIANCES = np.arange(1, HIDDEN + 1) ** -0.75
VARIANCES /= VARIANCES.sum()


class RandomEncoder(Encoder):
    """L2-normalised vectors that depend on the id of the first document or on the question. Each document has
    `model.num_sentences` sentences."""

    def encode(self, documents: Sequence[Document]) -> np.ndarray:
        return random_vectors(len(documents), seed=[0, int(documents[0].id)])

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        return np.concatenate([random_vectors(1, seed=[1, zlib.crc32(query.encode())]) for query in queries])

    def encode_with_sentences(self, documents: Sequence[Document]) -> tuple[np.ndarray, list[DocumentSentences]]:
        count: Any = self.model.num_sentences
        vectors = self.encode(documents)
        own = random_vectors(len(documents) * count, seed=[2, int(documents[0].id)]).reshape(-1, count, HIDDEN)
        return vectors, [
            DocumentSentences([(0, len(document.text))] * count, torch.from_numpy(vector + rows))
            for document, vector, rows in zip(documents, vectors, own)
        ]

    def name_truncated(self, documents: Sequence[Document]) -> int:
        return 0

    def probe(self) -> np.ndarray:
        return np.append(random_vectors(2, seed=[3]) / 2**0.5, [0, 0, 0])


@dataclass
class IndexBenchmark:
    """Make an index of random vectors and query it."""

    documents: PositiveInt = 100_000
    """Documents in the index, 100 at least."""

    queries: PositiveInt = 20
    """Queries of each ranking, after a first one; ten times as many for recall."""

    sentences: NonNegativeInt = 0
    """Sentences of each document. If there are any, their vectors are stored and `late` is timed."""

    sentence_size: PositiveInt = HIDDEN
    """Numbers of a sentence vector."""

    output: str = "runs/index-benchmark"
    """A folder to write, which must not exist; it is removed at the end."""

    def __post_init__(self) -> None:
        if self.documents < 10 * HITS:
            raise ValueError(
                f"documents is {self.documents}; make it {10 * HITS} at least, so that {HITS} documents are German"
            )


@dataclass
class RandomDocuments:
    """Random documents, made anew at each iteration."""

    count: int

    def __iter__(self) -> Iterator[Document]:
        for first in range(0, self.count, BLOCK):
            for number, text in enumerate(random_texts(min(BLOCK, self.count - first), WORDS, seed=first), first):
                yield Document(str(number), f"Document {number}", "en" if number % 10 else "de", text)


def random_ranks(number: int, size: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Ranks from 1 to `number` by Zipf's law: n comes about 1 / n times as often as 1."""
    # The inverse of the distribution function of 1 / n is an exponential function.
    return (number ** generator.random(size)).astype(int)


def random_texts(count: int, words: int, seed: int) -> list[str]:
    ranks = random_ranks(VOCABULARY, (count, words), np.random.default_rng(seed))
    return [" ".join(f"w{rank}" for rank in row) for row in ranks]


@cache
def subjects() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((SUBJECTS, HIDDEN), np.float32)


def random_vectors(count: int, seed: list[int]) -> np.ndarray:
    """(count, HIDDEN), float32, L2-normalised."""
    generator = np.random.default_rng(seed)
    own = generator.standard_normal((count, HIDDEN), np.float32)
    around = subjects()[random_ranks(SUBJECTS, (count,), generator) - 1]
    scattered = (math.sqrt(1 - SHARED) * own + math.sqrt(SHARED) * around) * np.sqrt(VARIANCES, dtype=np.float32)
    vectors = scattered + HIDDEN**-0.5  # the common direction is the diagonal
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def encoder(num_sentences: int = 0, sentence_size: int = HIDDEN) -> Encoder:
    config = SimpleNamespace(hidden_size=HIDDEN, document_pooling="mean", truncate_dims=[sentence_size])
    tokenizer: Any = None
    model: Any = SimpleNamespace(config=config, num_sentences=num_sentences)
    return RandomEncoder("random", model, tokenizer)


def make(folder: Path, documents: int, sentences: int, sentence_size: int = HIDDEN) -> str:
    hmde.index.update.APPROXIMATE_FROM = documents + 1
    with peak_memory("cpu") as memory, timed() as taken:
        update_index(folder, RandomDocuments(documents), encoder(sentences, sentence_size), sentences=sentences > 0)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20
    return f"making    {taken.seconds:8.0f} s     {memory}, disk {size:.0f} MiB"


def update(folder: Path, documents: int, sentences: int) -> str:
    with peak_memory("cpu") as memory, timed() as taken:
        changes = update_index(folder, RandomDocuments(documents + BLOCK), encoder(sentences))
    return f"adding {changes.added} {taken.seconds:6.0f} s     {memory}"


def query(folder: Path, ranking: Ranking, languages: list[str] | None, queries: int) -> str:
    times: list[Time] = []
    with peak_memory("cpu") as memory:
        for question in random_texts(queries + 1, QUESTION_WORDS, seed=1):
            with timed() as taken:
                if not times:
                    index = open_snapshot(folder)
                index.documents(list(rank(index, question, encoder(), ranking, HITS, languages)))
            times.append(taken)
    first, *others = (1000 * taken.seconds for taken in times)
    cpu = statistics.median(1000 * taken.cpu_seconds for taken in times[1:])
    name = " ".join([ranking, *(languages or ())])
    return (
        f"{name:9} {statistics.median(others):8.0f} ms    CPU time {cpu:.0f} ms, slowest {max(others):.0f} ms, "
        f"first, with opening, {first:.0f} ms, {memory}"
    )


def recall(folder: Path, ranking: Ranking, languages: list[str] | None, queries: int) -> str:
    index = open_snapshot(folder)
    vectors = encoder().encode_queries(random_texts(queries, QUESTION_WORDS, seed=1))
    expected = nearest(index, ranking, vectors, languages)
    # No words, for which BM25 would change the score of `late`.
    found = [rank(index, "", encoder(), ranking, HITS, languages, vector=vector) for vector in vectors]
    share = sum(len({*ids} & {*scores}) for ids, scores in zip(expected, found)) / expected.size
    asked = " ".join(["recall", ranking, *(languages or ())])
    return f"{asked:9} {share:8.3f} of the {HITS} nearest, {queries} questions"


def nearest(index: Snapshot, ranking: Ranking, vectors: np.ndarray, languages: list[str] | None) -> np.ndarray:
    """(questions, HITS), the ids of the best documents for each vector, which is compared with all of them."""
    cosines = np.empty((len(vectors), 0), np.float32)
    ids = np.empty((len(vectors), 0), object)
    columns = ["id", "language", "vector"] + (CODE_COLUMNS if ranking == "late" else [])
    for batch in index.table.search().select(columns).to_batches(ROWS_PER_BATCH // 16):
        if languages is not None:
            batch = batch.filter(pa.compute.is_in(batch["language"], pa.array(languages)))
        stored = batch["vector"].flatten().to_numpy().reshape(-1, HIDDEN)
        names = batch["id"].to_numpy(zero_copy_only=False)
        scores = vectors @ stored.T
        if ranking == "late":
            sentences = index.sentence_vectors(pa.Table.from_batches([batch]))
            sentence_scores = cut(vectors, index.sentence_size) @ sentences.T
            sentence_scores = sentence_scores.reshape(len(vectors), len(names), -1)
            scores = late_score(scores, sentence_scores.max(axis=2), sentence_scores[..., 0])
        cosines = np.hstack([cosines, scores])
        ids = np.hstack([ids, np.broadcast_to(names, (len(vectors), len(names)))])
        best = np.argpartition(-cosines, HITS - 1)[:, :HITS]
        cosines, ids = (np.take_along_axis(values, best, axis=1) for values in (cosines, ids))
    return ids


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(IndexBenchmark, argv)
    documents, queries, sentences = benchmark.documents, benchmark.queries, benchmark.sentences
    folder = Path(benchmark.output)
    if folder.exists():
        raise ValueError(f"output {folder} exists; name a folder that does not, since it is removed at the end")
    print(f"{documents} documents, {HIDDEN} dimensions")
    ranked = RANKINGS if sentences else [ranking for ranking in RANKINGS if ranking != "late"]  # which needs them
    steps = [
        partial(make, folder, documents, sentences, benchmark.sentence_size),
        partial(query, folder, "dense", None, queries),  # an exhaustive search: there is no approximate index yet
        partial(update, folder, documents, sentences),
        *(partial(query, folder, ranking, None, queries) for ranking in ranked),
        partial(query, folder, "dense", ["de"], queries),
        *(partial(recall, folder, "dense", languages, 10 * queries) for languages in (None, ["de"])),
        *([partial(recall, folder, "late", None, queries)] if sentences else []),
    ]
    for step in steps:
        print(in_new_process(step), flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    run(main)
