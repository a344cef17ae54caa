"""An index on disk: a vector of each document, in FAISS, beside its text, in Parquet.

    index.json                       the generation in use, the model that made it, and what that model makes of a probe
    generation-*/vectors.faiss       (documents, hidden), of unit length
    generation-*/documents.parquet   id, title, language, text and content_hash, in the order of the vectors

A generation is written whole before index.json is replaced by one that names it, which is one rename. So whenever a
process is killed, the index is as it was before or as it is after a commit; what it leaves behind, the next commit
removes. One process at a time may update an index; any number may read it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import faiss
import numpy as np
import pyarrow
import pyarrow.parquet

from modeling_hmde import Explanation, HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.attribution_hmde import Scoring
from search.documents import Document

# Documents that are encoded before they are committed: no more is lost when a process is killed.
DOCUMENTS_PER_COMMIT = 1024

# Documents that late interaction ranks anew, the nearest by cosine.
CANDIDATES = 50

# In its vector all takes part that decides a document's: weights, prompts, the division into sentences.
PROBE = "The probe is short. Проба коротка.\n探测很短。"

COLUMNS = pyarrow.schema([(name, pyarrow.string()) for name in ("id", "title", "language", "text", "content_hash")])


class Encoder(NamedTuple):
    """A model, its tokenizer, and the name or folder they were read from."""

    name: str
    model: HMDEForDocumentEmbedding
    tokenizer: HMDETokenizer

    @classmethod
    def load(cls, name: str) -> Encoder:
        """Reads a saved HMDE.

        Raises:
            ValueError: there is none.
        """
        try:
            tokenizer = HMDETokenizer.from_pretrained(name)
            model = HMDEForDocumentEmbedding.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise ValueError(f"{name} is no model folder and no name on the Hub that opens: {error}") from error
        return cls(str(Path(name).resolve()) if Path(name).is_dir() else name, model, tokenizer)

    def encode(self, documents: Sequence[Document], show_progress_bar: bool = False) -> np.ndarray:
        """(documents, hidden), float32, of unit length."""
        return self.model.encode_documents(
            [document.text for document in documents],
            self.tokenizer,
            language=[document.language for document in documents],
            show_progress_bar=show_progress_bar,
        )

    def probe(self) -> np.ndarray:
        """(hidden + 2,), by which one model is told from another: a vector, and how much of a document is read."""
        (vector,) = self.model.encode_documents([PROBE], self.tokenizer)
        return np.append(vector, [self.tokenizer.max_sentences, self.tokenizer.max_sentence_length])


class Changes(NamedTuple):
    """How many documents an update found, by what became of them."""

    added: int
    changed: int
    removed: int
    unchanged: int


class Hit(NamedTuple):
    """A document and why it was found."""

    document: Document
    explanation: Explanation


@dataclass
class Index:
    """An index in memory.

    Args:
        model: name or folder of the model that made it.
        probe: (hidden + 2,), see `Encoder.probe`.
        documents: in the order of the vectors.
        vectors: (documents, hidden), float32, of unit length.
    """

    model: str
    probe: np.ndarray
    documents: list[Document]
    vectors: np.ndarray

    def check(self, encoder: Encoder) -> None:
        """
        Raises:
            ValueError: the index was made by a model that computes other vectors.
        """
        probe = encoder.probe()
        # Wide enough for another processor's arithmetic, too narrow for other weights.
        if probe.shape != self.probe.shape or not np.allclose(probe, self.probe, atol=1e-3):
            raise ValueError(
                f"the index was made by another model ({self.model}) than {encoder.name}, so their vectors do not "
                "compare; query it with that model, or make a new index in another folder"
            )

    def search(
        self, question: str, encoder: Encoder, num_hits: int = 5, scoring: Scoring = "contribution"
    ) -> list[Hit]:
        """The best documents for a question in any language, best first, explained by their sentences.

        Args:
            question: one text.
            encoder: one that `check` let pass.
            num_hits: documents at most.
            scoring: `contribution` ranks by the cosine of whole documents, `maximum` the 50 nearest of these again, by
                the cosine of their best sentence.
        """
        nearest = faiss.IndexFlatIP(self.vectors.shape[1])
        nearest.add(self.vectors)
        (query,) = encoder.model.encode_queries([question], encoder.tokenizer)
        num_found = min(CANDIDATES if scoring == "maximum" else num_hits, len(self.documents))
        _, (places,) = nearest.search(query[None], num_found)
        found = [self.documents[place] for place in places]
        explanations = encoder.model.explain(
            question,
            [document.text for document in found],
            encoder.tokenizer,
            language=[document.language for document in found],
            scoring=scoring,
        )
        hits = [Hit(document, explanation) for document, explanation in zip(found, explanations)]
        return sorted(hits, key=lambda hit: hit.explanation.score, reverse=True)[:num_hits]


def model_of_index(folder: str | Path) -> str | None:
    """The name or folder of the model that made an index; None where there is no index."""
    manifest = Path(folder) / "index.json"
    return json.loads(manifest.read_text(encoding="utf-8"))["model"] if manifest.exists() else None


def open_index(folder: str | Path) -> Index:
    """Reads an index.

    Raises:
        ValueError: there is none in the folder.
    """
    folder = Path(folder)
    if not (folder / "index.json").exists():
        raise ValueError(f"{folder} holds no index; make one with: python -m search index DOCUMENTS {folder}")
    manifest = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    generation = folder / manifest["generation"]
    vectors = faiss.read_index(str(generation / "vectors.faiss"))
    rows = pyarrow.parquet.read_table(generation / "documents.parquet").drop_columns("content_hash").to_pylist()
    return Index(
        model=manifest["model"],
        probe=np.array(manifest["probe"]),
        documents=[Document(**row) for row in rows],
        vectors=vectors.reconstruct_n(0, vectors.ntotal),
    )


def update_index(
    folder: str | Path, documents: Sequence[Document], encoder: Encoder, show_progress_bar: bool = False
) -> Changes:
    """Makes an index the index of some documents: encodes what is new or changed, keeps the rest, drops what is gone.

    Commits every 1024 documents; a process that was killed and is started again goes on from the last commit.

    Args:
        folder: of the index; made if need be.
        documents: all that the index shall hold.
        encoder: the model; for an index that exists, the one that made it.
        show_progress_bar: over documents.

    Raises:
        ValueError: the index was made by another model.
    """
    folder = Path(folder)
    if model_of_index(folder) is None:
        old = Index(encoder.name, encoder.probe(), [], np.empty((0, encoder.model.config.hidden_size), np.float32))
    else:
        old = open_index(folder)
        old.check(encoder)
    known = {document.id: place for place, document in enumerate(old.documents)}
    hashes = [document.content_hash for document in old.documents]
    kept = [
        document
        for document in documents
        if document.id in known and hashes[known[document.id]] == document.content_hash
    ]
    kept_ids = {document.id for document in kept}
    fresh = [document for document in documents if document.id not in kept_ids]
    changes = Changes(
        added=sum(document.id not in known for document in fresh),
        changed=sum(document.id in known for document in fresh),
        removed=len(known.keys() - {document.id for document in documents}),
        unchanged=len(kept),
    )
    index = Index(old.model, old.probe, kept, old.vectors[[known[document.id] for document in kept]])
    if kept != old.documents:
        _commit(folder, index)
    for first in range(0, len(fresh), DOCUMENTS_PER_COMMIT):
        batch = fresh[first : first + DOCUMENTS_PER_COMMIT]
        vectors = np.concatenate([index.vectors, encoder.encode(batch, show_progress_bar)])
        index = Index(index.model, index.probe, index.documents + batch, vectors)
        _commit(folder, index)
    return changes


def _commit(folder: Path, index: Index) -> None:
    """Writes a generation and puts it to use, all or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    generation = Path(tempfile.mkdtemp(prefix="generation-", dir=folder))
    rows = [asdict(document) | {"content_hash": document.content_hash} for document in index.documents]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, COLUMNS), generation / "documents.parquet")
    vectors = faiss.IndexFlatIP(index.vectors.shape[1])
    vectors.add(index.vectors)
    faiss.write_index(vectors, str(generation / "vectors.faiss"))
    manifest = {"generation": generation.name, "model": index.model, "probe": index.probe.tolist()}
    partial = folder / "index.json.partial"
    partial.write_text(json.dumps(manifest, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, folder / "index.json")
    for other in folder.glob("generation-*"):
        if other != generation:
            shutil.rmtree(other)
