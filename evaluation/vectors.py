"""Document vectors on disk, found again by what they were made from. Texts are read as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from evaluation.datasets.languages import languages_of
from evaluation.datasets.retrieval_sets import DocumentFile, RetrievalSet, texts_of
from hmde.common.files import file_written_whole, locked
from hmde.common.fingerprints import digest, fingerprint
from hmde.common.progress import Advance, no_bar

Encode = Callable[[list[str]], np.ndarray]
Part = TypeVar("Part")

# Documents whose texts are in memory at once: as many as an HMDE tokenizes together.
DOCUMENTS_AT_ONCE = 1024


def cached_vectors(
    encode: Encode,
    documents: Mapping[str, str],
    cache: Path | None = None,
    cache_key: str = "",
    advance: Advance = no_bar,
) -> np.ndarray:
    """The vectors of a collection, from the cache if they are there, memory-mapped.

    If several processes need the same vectors, one computes them and the others wait.

    Args:
        encode: some texts to (texts, hidden), float32.
        documents: text by doc_id.
        cache: folder of vectors; None keeps nothing.
        cache_key: of the system that `encode` belongs to.
        advance: told how many documents are done, whenever some are.

    Returns:
        (documents, hidden), float32, in the order of `documents`.

    Raises:
        OSError: the disk is full; names the file.
        ValueError: the file of the documents changed while they were encoded.
    """
    if cache is None:
        return np.concatenate(list(encoded_in_parts(encode, documents, advance)))

    def write(path: Path) -> None:
        _write_vectors(path, encoded_in_parts(encode, documents, advance), len(documents))

    return np.load(cached_file(cache, cache_key, ".npy", documents, advance, write), mmap_mode="r")


def cached_file(
    cache: Path, key: str, suffix: str, documents: Mapping[str, str], advance: Advance, write: Callable[[Path], None]
) -> Path:
    """The file of what is computed from documents. If it is not there, `write` computes it; other arguments, processes
    and errors as in `cached_vectors`."""
    made_from = fingerprint_of_documents(documents)
    path = cache / f"{key}-{made_from}{suffix}"
    with locked(path):
        if path.exists():
            advance(len(documents))
        else:
            with file_written_whole(path) as partial:
                write(partial)
                if fingerprint_of_documents(documents) != made_from:
                    raise ValueError("the documents changed while they were encoded; start again when they are final")
    return path


def vectors_of_queries(
    encode: Encode, retrieval_set: RetrievalSet, pairs: Sequence[str]
) -> dict[str, dict[str, np.ndarray]]:
    """(hidden,), by language and query_id. The queries of a language are encoded together, once for all pairs."""
    return {
        language: dict(zip(texts, cached_vectors(encode, texts)))
        for language in dict.fromkeys(languages_of(pair)[0] for pair in pairs)
        for texts in [retrieval_set.queries[language]]
    }


def _write_vectors(path: Path, batches: Iterator[np.ndarray], count: int) -> None:
    """A .npy file of `count` vectors, some of which come at a time (documents, hidden)."""
    with path.open("wb") as file:
        for batch in batches:
            if file.tell() == 0:
                header = {"descr": "<f4", "fortran_order": False, "shape": (count, batch.shape[1])}
                np.lib.format.write_array_header_1_0(file, header)
            file.write(batch.astype("<f4").tobytes())


def encoded_in_parts(
    encode: Callable[[list[str]], Part], documents: Mapping[str, str], advance: Advance
) -> Iterator[Part]:
    """What `encode` makes of all documents, some at a time."""
    texts = texts_of(documents)
    while batch := list(islice(texts, DOCUMENTS_AT_ONCE)):
        yield encode(batch)
        advance(len(batch))


def fingerprint_of_documents(documents: Mapping[str, str]) -> str:
    """Hashes the ids and texts, or the file that has them."""
    if isinstance(documents, DocumentFile):
        return fingerprint(digest(documents.path))
    return fingerprint(*documents.items())
