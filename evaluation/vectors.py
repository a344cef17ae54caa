"""Document vectors and their indexes on disk, known by what they were made from; texts pass through in a stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import faiss
import numpy as np

from evaluation.readers import DocumentFile
from evaluation.saved_models import digest, fingerprint

IndexKind = Literal["flat", "ivf", "hnsw"]
Encode = Callable[[list[str]], np.ndarray]

# Documents whose texts are in memory at once.
DOCUMENTS_AT_ONCE = 4096


def cached_vectors(
    encode: Encode, documents: Mapping[str, str], cache: Path | None = None, maker: str = ""
) -> np.ndarray:
    """The vectors of a collection, from the cache if they are there, memory-mapped.

    Args:
        encode: some texts to (texts, hidden), float32.
        documents: text by doc_id.
        cache: folder of vectors; None keeps nothing.
        maker: fingerprint of the system that `encode` belongs to.

    Returns:
        (documents, hidden), float32, in the order of `documents`.
    """
    if cache is None:
        return np.concatenate([encode(texts) for texts in _batches(_texts(documents))])
    path = cache / f"{maker}-{_fingerprint_of_documents(documents)}.npy"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        batches = (encode(texts) for texts in _batches(_texts(documents)))
        first = next(batches)
        vectors = np.lib.format.open_memmap(
            partial, mode="w+", dtype=np.float32, shape=(len(documents), first.shape[1])
        )
        vectors[: len(first)] = first
        begin = len(first)
        for batch in batches:
            vectors[begin : begin + len(batch)] = batch
            begin += len(batch)
        vectors.flush()
        os.replace(partial, path)
    return np.load(path, mmap_mode="r")


def _texts(documents: Mapping[str, str]) -> Iterable[str]:
    return documents.texts() if isinstance(documents, DocumentFile) else documents.values()


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(texts)
    while batch := list(islice(rest, DOCUMENTS_AT_ONCE)):
        yield batch


def _fingerprint_of_documents(documents: Mapping[str, str]) -> str:
    if isinstance(documents, DocumentFile):
        return fingerprint(digest(documents.path))
    return fingerprint(*documents.items())


def search(
    vectors: np.ndarray, queries: np.ndarray, depth: int, kind: IndexKind = "flat", index_file: Path | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors with the highest inner products with each query.

    Args:
        vectors: (documents, hidden), float32.
        queries: (queries, hidden), float32.
        depth: documents a query ranks at most.
        kind: `flat` compares all, exactly; `ivf` and `hnsw` leave out most, for speed.
        index_file: where an `ivf` or `hnsw` index is kept; one that is there is used. Its name must tell the vectors.

    Returns:
        inner products and rows of `vectors`, both (queries, documents ranked); row -1 where an index found fewer.
    """
    depth = min(depth, len(vectors))
    if index_file is not None and index_file.exists():
        index: Any = faiss.read_index(str(index_file))
    else:
        index = build_index(vectors, kind)
        if index_file is not None and kind != "flat":  # which would be a copy of the vectors
            partial = index_file.with_suffix(".partial")
            faiss.write_index(index, str(partial))
            os.replace(partial, index_file)
    if kind == "hnsw":
        faiss.ParameterSpace().set_index_parameter(index, "efSearch", max(2 * depth, 128))
    return index.search(queries, depth)


def build_index(vectors: np.ndarray, kind: IndexKind) -> Any:
    """An index of inner products, of the size that FAISS's guidelines give for the number of vectors."""
    lists = max(1, min(int(4 * len(vectors) ** 0.5), len(vectors) // 39))  # k-means wants 39 vectors a list
    description = {"flat": "Flat", "ivf": f"IVF{lists},Flat", "hnsw": "HNSW32"}[kind]
    index: Any = faiss.index_factory(vectors.shape[1], description, faiss.METRIC_INNER_PRODUCT)
    if kind == "ivf":
        sample = np.random.default_rng(0).permutation(len(vectors))[: 50 * lists]
        index.train(np.ascontiguousarray(vectors[np.sort(sample)]))
        index.nprobe = max(1, lists // 8)
    add(index, vectors)
    return index


def add(index: Any, vectors: np.ndarray) -> None:
    """Adds vectors to an index piece by piece, so that a memory-mapped file is never in memory whole."""
    for begin in range(0, len(vectors), DOCUMENTS_AT_ONCE):
        index.add(np.ascontiguousarray(vectors[begin : begin + DOCUMENTS_AT_ONCE]))
