"""An index and the model that made it: what `from hmde import Index` gives, and all commands use."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import hmde.common.threads

import numpy as np

from hmde.common.device import Dtype
from hmde.documents.documents import Document
from hmde.index import Ranking
from hmde.index.encoder import Encoder
from hmde.index.precomputed import PrecomputedEmbeddings
from hmde.index.ranking import Hit, search_index
from hmde.index.snapshot import Snapshot, is_index, open_snapshot, place_of
from hmde.index.update import Changes, remove_documents, update_index

SECONDS_BETWEEN_LOOKS = 1.0  # at the folder, whether another process has changed the index


class Index:
    """Documents that are searched in any language, kept in a folder.

    Several threads may search one index. Several processes may change one folder; each waits for the other.

    Args:
        folder: of the index. It is made by the first documents. The URL of a copy in an object store can only be read.
        model: folder or Hub name of a saved HMDE, or one that is loaded already. If not given, a new index is made by
            the released model, which is put together on first use. An index that exists knows its own model, so name it
            only if it was moved.
        dtype: of weights and activations, if the model is to be loaded.

    Raises:
        IndexNotFound: there is none behind a URL.
        ValueError: there is no such model, it is not the one that made the index, or the index is damaged.

    >>> from hmde import Document, Index
    >>> index = Index(folder, model)
    >>> index.add([
    ...     Document("cat", "Cats", "en", "The cat sat on the mat. It was warm.", {"year": 2019}),
    ...     Document("hund", "Hunde", "de", "Der Hund schlief in der Sonne.", {"year": 2024}),
    ... ])
    Changes(added=2, changed=0, removed=0, unchanged=0)
    >>> [hit] = index.search("Where did the dog sleep?", where="year > 2020")
    >>> hit.document.title, hit.document.metadata
    ('Hunde', {'year': 2024})
    >>> index.remove(["cat"]), len(index)
    (1, 1)
    """

    def __init__(self, folder: str | Path, model: str | Encoder | None = None, *, dtype: Dtype = "auto") -> None:
        self.folder = place_of(folder)
        new = isinstance(self.folder, Path) and not is_index(self.folder)  # behind a URL none can be made
        self._snapshot = None if new else open_snapshot(self.folder)
        self._looked = time.monotonic()
        self.encoder = model if isinstance(model, Encoder) else self._load(model, dtype)
        if self._snapshot is not None:
            self._snapshot.check(self.encoder)

    def _load(self, model: str | None, dtype: Dtype) -> Encoder:
        if model is not None or self._snapshot is None:
            return Encoder.load(model, dtype)
        try:
            return Encoder.load(self._snapshot.model, dtype)
        except ValueError as error:
            raise ValueError(
                f"the model that made the index {self.folder} does not load: {error}; if it was moved, say where it "
                "is: --model FOLDER, or Index(folder, model)"
            ) from error

    @property
    def snapshot(self) -> Snapshot:
        """The newest version of the index, looked for at most every SECONDS_BETWEEN_LOOKS.

        Raises:
            IndexNotFound: no document has been added yet.
            ValueError: another model has made the index again.
        """
        snapshot = self._snapshot
        if snapshot is None or time.monotonic() - self._looked > SECONDS_BETWEEN_LOOKS:
            newest = open_snapshot(self.folder)
            if snapshot is None or newest.made != snapshot.made:
                newest.check(self.encoder)
                snapshot = newest
            elif newest.table.version != snapshot.table.version:
                snapshot = newest  # else the old one stays, which knows its languages
            self._snapshot, self._looked = snapshot, time.monotonic()
        return snapshot

    @property
    def languages(self) -> list[str]:
        """The languages of the documents, sorted."""
        return self.snapshot.languages

    def __len__(self) -> int:
        return len(self.snapshot)

    def add(self, documents: Iterable[Document], *, sentences: bool | None = None) -> Changes:
        """Adds documents; one with the id of another takes its place. Arguments and errors as in `update`."""
        changes = update_index(self.folder, list(documents), self.encoder, keep_others=True, sentences=sentences)
        self._looked = -math.inf  # the next search opens what was written
        return changes

    def update(
        self,
        documents: Iterable[Document],
        *,
        sentences: bool | None = None,
        embeddings: PrecomputedEmbeddings | None = None,
        show_progress_bar: bool = False,
    ) -> Changes:
        """Makes these the documents of the index: encodes what is new or changed, removes what is gone. If the process
        is killed, the same call goes on where it was.

        Args:
            documents: all that the index is to hold, such as a list or `Documents`. They are read twice.
            sentences: keep a vector for each sentence, which `late` and explanations need. If None, a new index keeps
                them unless `embeddings` are given, and an index that exists goes on as it began.
            embeddings: of the same model, for an index without sentences; documents found there are not encoded.
            show_progress_bar: over documents.

        Raises:
            TypeError, ValueError, OSError: as `hmde.index.update.update_index`.
        """
        changes = update_index(
            self.folder,
            documents,
            self.encoder,
            sentences=sentences,
            embeddings=embeddings,
            show_progress_bar=show_progress_bar,
        )
        self._looked = -math.inf
        return changes

    def remove(self, ids: Iterable[str]) -> int:
        """Removes the documents with these ids, and says how many there were. Errors as in `remove_documents`."""
        count = remove_documents(self.folder, ids)
        self._looked = -math.inf
        return count

    def search(
        self,
        query: str,
        hits: int = 5,
        *,
        ranking: Ranking | None = None,
        languages: Sequence[str] | None = None,
        where: str | None = None,
        vector: np.ndarray | None = None,
    ) -> list[Hit]:
        """The best documents for a query, best first, each with how well its sentences match.

        Args:
            query: a text in any language.
            hits: documents at most.
            ranking: see `hmde.index.ranking.search_index`.
            languages, where, vector: see `hmde.index.ranking.rank`.

        Raises:
            IndexNotFound, UnknownLanguage, InvalidCondition, TypeError, ValueError: as `ranking.search_index`.
        """
        return search_index(self.snapshot, query, self.encoder, hits, ranking, languages, where, vector)
