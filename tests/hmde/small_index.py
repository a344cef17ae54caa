"""A few documents, and checks of an index of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from hmde.documents.documents import Document
from hmde.index.codes import decode, encode
from hmde.index.encoder import Encoder, cut, sentence_of_probe
from hmde.index.ranking import rank
from hmde.index.snapshot import open_snapshot
from modeling_hmde.attribution_hmde import DocumentSentences

TEXTS = {
    "cat": "The cat sat on the mat. It was warm there!",
    "dog": "Der Hund sah die Katze. Sie lag in der Sonne.",
    "chat": "Le chat dort.",
    "кот": "Кот спит на ковре. Собака смотрит на него.",
}
CHANGED = {"chat": TEXTS["chat"], "dog": "Der Hund schlief.", "new": "猫在垫子上睡觉。"}


def documents_of(texts: dict[str, str]) -> list[Document]:
    return [Document(name, name, None, text) for name, text in texts.items()]


def as_kept(vectors: torch.Tensor, encoder: Encoder) -> torch.Tensor:
    """Sentence vectors as an index of the encoder keeps them."""
    centre = cut(sentence_of_probe(encoder.probe()), vectors.shape[1])
    return torch.from_numpy(decode(encode(vectors.numpy(), centre), centre))


class CountingEncoder(Encoder):
    """Remembers what it encoded."""

    encoded: list[str]

    def encode(self, documents: Sequence[Document]) -> np.ndarray:
        self.encoded.extend(document.id for document in documents)
        return super().encode(documents)

    def encode_with_sentences(self, documents: Sequence[Document]) -> tuple[np.ndarray, list[DocumentSentences]]:
        self.encoded.extend(document.id for document in documents)
        return super().encode_with_sentences(documents)

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        self.encoded.extend(queries)
        return super().encode_queries(queries)


def rows_of(folder: Path) -> list[dict]:
    return open_snapshot(folder).table.search().to_list()


def check_index(folder: Path, texts: dict[str, str], encoder: Encoder) -> None:
    """The index holds these documents and no others, each with its own vector, and BM25 finds each by its text."""
    rows = rows_of(folder)
    assert len(rows) == len(texts)
    assert {row["id"]: row["text"] for row in rows} == texts
    documents = [Document(row["id"], row["title"], row["language"], row["text"]) for row in rows]
    vectors = np.array([row["vector"] for row in rows]).reshape(len(rows), encoder.model.config.hidden_size)
    np.testing.assert_allclose(vectors, encoder.encode(documents), atol=1e-5)
    for document in documents:
        assert document.id in rank(open_snapshot(folder), document.text, encoder, "bm25")
