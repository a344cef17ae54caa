"""Embeddings that hmde/commands/encode.py wrote, found by the content of the documents."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hmde.common.fingerprints import fingerprint_of_model
from hmde.documents.documents import Document
from hmde.release.released import opened_as


class PrecomputedEmbeddings:
    """A folder of embeddings. Memory holds a hash and a row number for each, and the embeddings of two shards.

    Args:
        folder: of shards.
        model: the name of the `Encoder` that made them.

    Raises:
        ValueError: there are none, a shard is damaged, or another model made it.
    """

    def __init__(self, folder: str | Path, model: str) -> None:
        self._shards = sorted(Path(folder).glob("shard-*.parquet"))
        if not self._shards:
            raise ValueError(
                f"{folder} holds no embeddings; make some with: hmde encode DOCUMENTS {folder} --model '{model}'"
            )
        fingerprint = fingerprint_of_model(opened_as(model)).encode()
        hashes, rows = [], []
        for number, shard in enumerate(self._shards):
            table = _read_column(shard, "content_hash")
            if (table.schema.metadata or {}).get(b"model") != fingerprint:
                raise ValueError(f"{shard} was made by another model than {model}; encode the collection again")
            hashes.append(_as_numbers(table["content_hash"].to_pylist()))
            rows.append(np.stack([np.full(len(table), number), np.arange(len(table))], axis=1))
        order = np.argsort(np.concatenate(hashes))
        self._hashes, self._rows = np.concatenate(hashes)[order], np.concatenate(rows)[order]

    def find(self, documents: Sequence[Document]) -> list[np.ndarray | None]:
        """(hidden,), float32, L2-normalised, for each document that has an embedding here; None for the others."""
        wanted = _as_numbers([document.content_hash for document in documents])
        first = np.searchsorted(self._hashes, wanted)
        found = first < len(self._hashes)
        found[found] = self._hashes[first[found]] == wanted[found]
        rows = (self._rows[place] if there else None for place, there in zip(first, found))
        return [None if row is None else self._embeddings(row[0])[row[1]] for row in rows]

    @lru_cache(maxsize=2)  # noqa: B019  (a process reads one folder)
    def _embeddings(self, shard: int) -> np.ndarray:
        """(documents, hidden) of a shard."""
        column = _read_column(self._shards[shard], "embedding")["embedding"].combine_chunks()
        return column.flatten().to_numpy().reshape(len(column), -1)


def _read_column(shard: Path, name: str) -> pa.Table:
    """One column of a shard, with the shard's metadata."""
    try:
        return pq.read_table(shard, columns=[name], page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"{shard} is damaged ({error}); encode the collection again") from None


def _as_numbers(hashes: list[str]) -> np.ndarray:
    return np.array([int(content_hash, 16) for content_hash in hashes], np.uint64)
