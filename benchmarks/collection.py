"""How fast two workers encode a collection by this project's command, by Ray Data and by Spark, beside one process.

    pip install -e '.[search,train,eval]' 'ray[data]' pyspark   (Spark needs Java 17)
    python -m benchmarks.collection --model runs/hmde-small --documents sample/docs

Each way encodes a few documents, which takes little more than to start and to load the model, and then all of them.
The difference is the time of the documents alone. Every worker computes with one thread.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import common.threads

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import markdown_table, timed, write_results
from common.command_line import options_from, run
from common.numbers import PositiveInt
from search.documents import Documents

Way = Literal["one process", "accelerate", "ray", "spark"]

REPOSITORY = Path(__file__).resolve().parents[1]
FILES = 8  # Parquet files that a collection is divided into, for the workers to share


@dataclass
class CollectionBenchmark:
    """Encode a collection in several ways."""

    model: str
    """Folder of an HMDE."""
    documents: str
    """A folder that `python -m search index` reads, or one file of it."""
    output: str = "runs/collection-benchmark"
    """Folder of results.md and results.json."""
    ways: list[Way] = field(default_factory=lambda: ["one process", "accelerate", "ray", "spark"])
    """Which are compared. The first is what the others are held against."""
    workers: PositiveInt = 2
    """Processes, of all ways but the first."""
    few: PositiveInt = 8
    """Documents of the short run."""
    most: PositiveInt = 400
    """At most so many documents are encoded in the long one."""


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(CollectionBenchmark, argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        documents = list(islice(Documents(Path(benchmark.documents)), benchmark.most))
        rows = [{"id": one.id, "text": one.text, "language": one.language} for one in documents]
        if len(rows) <= benchmark.few:
            raise ValueError(f"{benchmark.documents} has {len(rows)} documents; give more than few={benchmark.few}")
        write_collection(rows[: benchmark.few], folder / "few")
        write_collection(rows, folder / "all")
        measured, vectors = [], []
        for way in benchmark.ways:
            seconds = []
            for collection in ("few", "all"):
                output = folder / f"{way}-{collection}"
                with timed() as taken:
                    encode(way, benchmark, folder / collection, output)
                seconds.append(taken.seconds)
            vectors.append(read_embeddings(output))
            if vectors[-1].keys() != {row["id"] for row in rows}:
                raise ValueError(f"{way} gave {len(vectors[-1])} of {len(rows)} documents")
            rate = (len(rows) - benchmark.few) / (seconds[1] - seconds[0])
            measured.append({"way": way, "few": seconds[0], "all": seconds[1], "documents a second": rate})
    for row, found in zip(measured, vectors):
        row["times as fast"] = row["documents a second"] / measured[0]["documents a second"]
        row["difference"] = max(float(np.abs(found[id] - vector).max()) for id, vector in vectors[0].items())
    formats = {"few": ".1f", "all": ".1f", "documents a second": ".2f", "times as fast": ".2f", "difference": ".1e"}
    table = markdown_table({"way": "", **formats}, measured)
    write_results(benchmark, table, measured=measured, documents=len(rows))


def write_collection(rows: list[dict[str, Any]], folder: Path) -> None:
    """Parquet files with the columns `id`, `text` and `language`, among which the rows are dealt out."""
    folder.mkdir()
    for number in range(min(FILES, len(rows))):
        pq.write_table(pa.Table.from_pylist(rows[number::FILES]), folder / f"{number}.parquet")


def encode(way: Way, benchmark: CollectionBenchmark, documents: Path, output: Path) -> None:
    """Raises:
    ValueError: the program fails; its last words are in the message.
    """
    workers, model = str(benchmark.workers), str(Path(benchmark.model).resolve())
    ours = ["search.encode_collection", "--model", model, "--documents", str(documents), "--output", str(output)]
    ours += ["--dtype", "float32", "--documents_per_shard", "16"]
    launch = ["accelerate.commands.launch", "--cpu", "--num_processes", workers, "--num_machines", "1", "-m"]
    example = [model, str(documents), str(output), workers]
    arguments = {
        "one process": ["-m", *ours],
        "accelerate": ["-m", *launch, *ours],
        "ray": [str(REPOSITORY / "examples" / "ray_encode.py"), *example],
        "spark": [str(REPOSITORY / "examples" / "spark_encode.py"), *example],
    }[way]
    one_thread = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYSPARK_PYTHON": sys.executable}
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=REPOSITORY, env=os.environ | one_thread, capture_output=True, text=True
    )
    if ended.returncode:
        raise ValueError(f"{way} ended with exit code {ended.returncode}: {(ended.stderr or ended.stdout)[-2000:]}")


def read_embeddings(folder: Path) -> dict[str, np.ndarray]:
    """The embedding of each document by its id, from a folder of Parquet."""
    rows = [row for file in sorted(folder.rglob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    return {row["id"]: np.asarray(row["embedding"], dtype=np.float32) for row in rows}


if __name__ == "__main__":
    run(main)
