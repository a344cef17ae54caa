"""Document vectors and their indexes on disk, known by what they were made from; texts pass through in a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from common.files import file_written_whole, locked, new_array
from common.fingerprints import digest, fingerprint
from common.progress import Advance, no_bar, progress_bar
from evaluation.datasets.files import DocumentFile
from evaluation.recipes import IndexKind

Encode = Callable[[list[str]], np.ndarray]

# Documents whose texts are in memory at once: as many as an HMDE tokenizes together.
DOCUMENTS_AT_ONCE = 1024

# Vectors that an index takes at once, so that a mapped file is never in memory whole.
VECTORS_AT_ONCE = 4096


def cached_vectors(
    encode: Encode,
    documents: Mapping[str, str],
    cache: Path | None = None,
    maker: str = "",
    advance: Advance = no_bar,
) -> np.ndarray:
    """The vectors of a collection, from the cache if they are there, memory-mapped.

    Of several processes that need the same vectors, one computes them and the others wait.

    Args:
        encode: some texts to (texts, hidden), float32.
        documents: text by doc_id.
        cache: folder of vectors; None keeps nothing.
        maker: fingerprint of the system that `encode` belongs to.
        advance: told how many documents are done, whenever some are.

    Returns:
        (documents, hidden), float32, in the order of `documents`.

    Raises:
        OSError: the disk has no room for the vectors.
        ValueError: the file of the documents changed while they were encoded.
    """
    if cache is None:
        return np.concatenate(list(_encoded(encode, documents, advance)))
    made_from = fingerprint_of_documents(documents)
    path = cache / f"{maker}-{made_from}.npy"
    with locked(path):
        if path.exists():
            advance(len(documents))
        else:
            with file_written_whole(path) as partial:
                _write_vectors(partial, _encoded(encode, documents, advance), len(documents))
                if fingerprint_of_documents(documents) != made_from:
                    raise ValueError("the documents changed while they were encoded; start again when they are final")
    return np.load(path, mmap_mode="r")


def _write_vectors(path: Path, batches: Iterator[np.ndarray], count: int) -> None:
    batch = next(batches)
    vectors = new_array(path, (count, batch.shape[1]), np.float32)
    vectors[: len(batch)] = batch
    begin = len(batch)
    for batch in batches:
        vectors[begin : begin + len(batch)] = batch
        begin += len(batch)
    assert isinstance(vectors, np.memmap)
    vectors.flush()


def _encoded(encode: Encode, documents: Mapping[str, str], advance: Advance) -> Iterator[np.ndarray]:
    """The vectors of all documents, piece by piece."""
    texts = texts_of(documents)
    while batch := list(islice(texts, DOCUMENTS_AT_ONCE)):
        yield encode(batch)
        advance(len(batch))


def texts_of(documents: Mapping[str, str]) -> Iterator[str]:
    """All texts, in the order of their ids. A file is read once, from its beginning to its end."""
    return documents.texts() if isinstance(documents, DocumentFile) else iter(documents.values())


def fingerprint_of_documents(documents: Mapping[str, str]) -> str:
    """Of the ids and texts, or of the file that has them."""
    if isinstance(documents, DocumentFile):
        return fingerprint(digest(documents.path))
    return fingerprint(*documents.items())


def search(
    vectors: np.ndarray,
    queries: np.ndarray,
    depth: int,
    kind: IndexKind = "flat",
    index_file: Path | None = None,
    name: str = "",
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors with the highest inner products with each query.

    Args:
        vectors: (documents, hidden), float32.
        queries: (queries, hidden), float32.
        depth: documents a query ranks at most.
        kind: `flat` compares all, exactly; `ivf` and `hnsw` leave out most, for speed.
        index_file: where an `ivf` or `hnsw` index is kept; one that is there is used. Its name must tell the vectors.
        name: of the progress bar while an index is built.

    Returns:
        inner products and rows of `vectors`, both (queries, documents ranked); row -1 where an index found fewer.
    """
    import faiss

    depth = min(depth, len(vectors))
    if index_file is None or kind == "flat":  # which would be a copy of the vectors
        index: Any = build_index(vectors, kind)
    else:
        with locked(index_file):
            if not index_file.exists():
                with file_written_whole(index_file) as partial:
                    faiss.write_index(build_index(vectors, kind, name), str(partial))
        index = faiss.read_index(str(index_file))
    if kind == "hnsw":
        faiss.ParameterSpace().set_index_parameter(index, "efSearch", max(2 * depth, 128))
    return index.search(queries, depth)


def build_index(vectors: np.ndarray, kind: IndexKind, name: str = "") -> Any:
    """An index of inner products, of the size that FAISS's guidelines give for the number of vectors."""
    import faiss

    lists = max(1, min(int(4 * len(vectors) ** 0.5), len(vectors) // 39))  # k-means wants 39 vectors a list
    description = {"flat": "Flat", "ivf": f"IVF{lists},Flat", "hnsw": "HNSW32"}[kind]
    index: Any = faiss.index_factory(vectors.shape[1], description, faiss.METRIC_INNER_PRODUCT)
    if kind == "ivf":
        sample = np.random.default_rng(0).permutation(len(vectors))[: 50 * lists]
        index.train(np.ascontiguousarray(vectors[np.sort(sample)]))
        index.nprobe = max(1, lists // 8)
    with progress_bar(name, len(vectors)) as progress:
        for begin in range(0, len(vectors), VECTORS_AT_ONCE):
            index.add(np.ascontiguousarray(vectors[begin : begin + VECTORS_AT_ONCE]))
            progress.update(min(VECTORS_AT_ONCE, len(vectors) - begin))
    return index
