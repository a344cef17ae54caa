"""What search/encode.py wrote, read: embeddings of documents, found by the documents' content."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.fingerprints import fingerprint_of_model
from search.documents import Document


class Embeddings:
    """Embeddings of a folder. Memory holds a hash and a row number of each, and the embeddings of two shards.

    Args:
        folder: of shards.
        model: folder or Hub name of the model that made them.

    Raises:
        ValueError: there are none, one is damaged, or another model made it.
    """

    def __init__(self, folder: str | Path, model: str) -> None:
        self._shards = sorted(Path(folder).glob("shard-*.parquet"))
        if not self._shards:
            raise ValueError(f"{folder} holds no embeddings; make some with: python -m search.encode --output {folder}")
        made_by = fingerprint_of_model(model).encode()
        hashes, rows = [], []
        for number, shard in enumerate(self._shards):
            table = read_column(shard, "content_hash")
            if (table.schema.metadata or {}).get(b"model") != made_by:
                raise ValueError(f"{shard} was made by another model than {model}; run python -m search.encode again")
            hashes.append(
                np.array([int(content_hash, 16) for content_hash in table["content_hash"].to_pylist()], np.uint64)
            )
            rows.append(np.stack([np.full(len(table), number), np.arange(len(table))], axis=1))
        order = np.argsort(np.concatenate(hashes))
        self._hashes, self._rows = np.concatenate(hashes)[order], np.concatenate(rows)[order]

    def find(self, documents: Sequence[Document]) -> list[np.ndarray | None]:
        """(hidden,), float32, of unit length, for each document of which there is an embedding."""
        wanted = np.array([int(document.content_hash, 16) for document in documents], np.uint64)
        first = np.searchsorted(self._hashes, wanted)
        found = first < len(self._hashes)
        found[found] = self._hashes[first[found]] == wanted[found]
        rows = (self._rows[index] if there else None for index, there in zip(first, found))
        return [None if row is None else self._embeddings(row[0])[row[1]] for row in rows]

    @lru_cache(maxsize=2)  # noqa: B019  (one folder is read in a process)
    def _embeddings(self, number: int) -> np.ndarray:
        """(documents, hidden) of a shard."""
        column = read_column(self._shards[number], "embedding")["embedding"].combine_chunks()
        return column.flatten().to_numpy().reshape(len(column), -1)


def read_column(shard: Path, name: str) -> pa.Table:
    """One column of a shard, with the shard's metadata.

    Raises:
        ValueError: the shard is damaged.
    """
    try:
        return pq.read_table(shard, columns=[name], page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"{shard} is damaged ({error}); run python -m search.encode again") from None
