"""An index and the model that made it: what `from hmde import Index` gives, and all commands use."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import get_args

import hmde.common.threads

import numpy as np

from hmde.common.device import Dtype
from hmde.documents.documents import Document, language_code
from hmde.index import Ranking
from hmde.index.encoder import Encoder
from hmde.index.hits import Hit, file_of, hits_of
from hmde.index.precomputed import PrecomputedEmbeddings
from hmde.index.ranking import CANDIDATES, rank
from hmde.index.snapshot import Snapshot, folder_of, is_index, open_snapshot
from hmde.index.update import Changes, remove_documents, update_index
from modeling_hmde.inference_hmde import Truncation

MOST_HITS = 2**31 - 1  # LanceDB counts no further
PARTS_PER_HIT = 20  # that are ranked, at most, where few files have all the best parts

SECONDS_BETWEEN_LOOKS = 1.0  # at the folder, whether another process has changed the index


class Index:
    """Documents that are searched in any language, kept in a folder.

    Several threads may search one index. Several processes may change one folder; each waits for the other.

    Args:
        folder: of the index. It is made by the first documents.
        model: folder or Hub name of a saved HMDE, or one that is loaded already. If not given, a new index is made by
            the released model, which is put together on first use. An index that exists knows its own model, so name it
            only if it was moved.
        dtype: of weights and activations, if the model is to be loaded.
        truncation: what is done with a document that is longer than the model reads: True encodes its beginning and
            says so once, "error" is a ValueError that names it.

    Raises:
        ValueError: there is no such model, it is not the one that made the index, or the index is damaged.

    >>> from hmde import Document, Index
    >>> index = Index(folder, model)
    >>> index.add([
    ...     Document("cat", "Cats", "en", "The cat sat on the mat. It was warm.", {"year": 2019}),
    ...     Document("hund", "Hunde", "de", "Der Hund schlief in der Sonne.", {"year": 2024}),
    ... ])
    Changes(added=2, changed=0, removed=0, unchanged=0, truncated=0)
    >>> [hit] = index.search("Where did the dog sleep?", where="year > 2020")
    >>> hit.document.title, hit.document.metadata
    ('Hunde', {'year': 2024})
    >>> index.remove(["cat"]), len(index)
    (1, 1)
    """

    def __init__(
        self,
        folder: str | Path,
        model: str | Encoder | None = None,
        *,
        dtype: Dtype = "auto",
        truncation: Truncation = True,
    ) -> None:
        self.folder = folder_of(folder)
        self._snapshot = open_snapshot(self.folder) if is_index(self.folder) else None
        self._looked = time.monotonic()
        self.encoder = model if isinstance(model, Encoder) else self._load(model, dtype, truncation)
        if self._snapshot is not None:
            self._snapshot.check(self.encoder)

    def _load(self, model: str | None, dtype: Dtype, truncation: Truncation) -> Encoder:
        if model is not None or self._snapshot is None:
            return Encoder.load(model, dtype, truncation)
        try:
            return Encoder.load(self._snapshot.model, dtype, truncation)
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

    def count(self, languages: Sequence[str] | None = None, where: str | None = None) -> int:
        """How many documents are in some languages and meet a condition. Arguments and errors as in `search`."""
        index = self.snapshot
        return index.table.count_rows(index.condition(_codes(languages), where))

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
        """Makes these the documents of the index: encodes what is new or changed, removes what is gone. What was only
        renamed keeps its vectors, and what is held of a file that cannot be read now, stays. If the process is killed,
        the same call goes on where it was.

        Args:
            documents: all that the index is to hold, such as a list or `Documents`. They are read twice.
            sentences: keep a vector for each sentence, which `late` and explanations need. If None, a new index keeps
                them unless `embeddings` are given, and an index that exists goes on as it began.
            embeddings: of the same model, for an index without sentences; documents found there are not encoded.
            show_progress_bar: over documents.

        Raises:
            TypeError: `documents` can be read only once.
            ValueError: the index was made by another model, keeps sentences against `sentences` or `embeddings`, keeps
                none against `sentences`, lies among the documents, or is damaged; an id is used twice; metadata of one
                name have several types; or the folder holds something else.
            OSError: the disk is full.
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
        offset: int = 0,
        ranking: Ranking | None = None,
        languages: Sequence[str] | None = None,
        where: str | None = None,
        vector: np.ndarray | None = None,
    ) -> list[Hit]:
        """The best documents for a query, best first, each with how well its sentences match.

        Args:
            query: a text in any language.
            hits: documents at most. Parts of one file, such as pages, count as one: the others stand in `Hit.parts`.
            offset: leave out so many of the best: those that were shown before.
            ranking: `dense` by the cosine of the vectors of query and document; `bm25` by words in common, without
                documents that have none; `hybrid` by both; `late` as `hybrid`, but with the weighted mean of the
                cosines of the document, its best sentence and its first in place of the document's. If None, the best
                that encodes no document for a query: `late` where the index keeps sentences, else `dense`.
            languages: only documents in these, by their codes, such as "de" or "deu"; in all if None.
            where: only documents that meet this condition in SQL, on id, title, language, text and the names of
                metadata: `"year > 2020 AND author = 'Li'"`.
            vector: (hidden,), L2-normalised, the query's by `encoder.encode_queries`, if it is known already: many are
                encoded faster together.

        Returns:
            hits, whose score is a cosine in `dense`, a BM25 score in `bm25`, and in the other two a cosine from which
            is taken what words in common speak against. The score of a sentence is its cosine with the query.

        Raises:
            ValueError: the query is blank; there is no such ranking; `hits` or `offset` is out of range; the files of
                the index are damaged. Of its kinds, IndexNotFound: no document has been added; UnknownLanguage: the
                index has no document in a language; InvalidCondition: `where` is no condition on the documents, or
                fails on one of them.
            TypeError: `languages` is one string.
        """
        languages = _codes(languages)
        _check(query, hits, offset, ranking)
        index = self.snapshot
        ranking = ranking or ("late" if index.keeps_sentences else "dense")
        if vector is None:
            (vector,) = self.encoder.encode_queries([query])
        scores: dict[str, float] = {}
        for depth in (CANDIDATES * 2**power for power in count()):
            found = rank(index, query, self.encoder, ranking, depth, languages, where, vector)
            for id, score in found.items():
                scores.setdefault(id, score)  # a deeper ranking may have another order; those before keep their places
            enough = len({*map(file_of, scores)}) >= offset + hits or depth >= PARTS_PER_HIT * (offset + hits)
            if enough or len(found) < depth:
                break
        return hits_of(index, self.encoder, vector, scores, slice(offset, offset + hits))


def _check(query: str, hits: int, offset: int, ranking: Ranking | None) -> None:
    """Refuses what `Index.search` does not take."""
    if not query.strip():
        raise ValueError(f"the query is {query!r}, without a word; write what is to be found")
    if ranking not in (None, *get_args(Ranking)):
        raise ValueError(f"ranking is {ranking!r}; choose one of {', '.join(get_args(Ranking))}")
    for name, value, least in (("hits", hits, 1), ("offset", offset, 0)):
        if not least <= value <= MOST_HITS:
            raise ValueError(f"{name} is {value}; give {least} or more, and at most {MOST_HITS}")


def _codes(languages: Sequence[str] | None) -> list[str] | None:
    """The languages as documents have them: "DE" and "deu" are "de"."""
    if isinstance(languages, str):
        raise TypeError(f"languages is the string {languages!r}; give a list of codes, such as ['de']")
    return None if languages is None else [language_code(code) or code for code in languages]
