"""An index on disk: a LanceDB table with one row for each document.

Its columns are id, title, language, text, headings (where each begins, and its words), one for each name in the
documents' metadata, content_hash, words (the BM25 terms of the text, with spaces between), vector (hidden,), float32,
L2-normalised, and, if the index keeps sentences, spans (sentences, 2) and sentence_signs, sentence_magnitudes and
sentence_lengths, the codes that codes.py makes of their vectors, which are cut to the smallest size that the model was
trained for. The metadata of the table name the model that made it, and hold FORMAT, its probe, the size of the sentence
vectors, and a name that no other index has.

Each write makes a new version of the table, as a whole or not at all. A process that is killed leaves the version
before, and a reader goes on seeing the version that it opened.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import lancedb
import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch
from lancedb.table import Table

from hmde.documents.documents import RESERVED, Document
from hmde.index.codes import Codes, cosines, decode, in_words, smallest_differences
from hmde.index.encoder import Encoder, cut, sentence_of_probe
from modeling_hmde.attribution_hmde import DocumentSentences

TABLE = "documents"

# Of all that this file describes and of what is done to a text before it is encoded or its words are counted: an index
# of another format is refused. 1 had no number.
FORMAT = 3
DOCUMENT_COLUMNS = ["id", "title", "language", "text"]
CODE_COLUMNS = [f"sentence_{name}" for name in Codes._fields]

# Rows of narrow columns that are read at once; each batch has a fixed cost.
ROWS_PER_BATCH = 65_536

# The approximate search over many documents (see `APPROXIMATE_FROM` in update.py): a query is compared with the
# vectors, quantised to one byte a number, of the documents in the nearest partitions. REFINE_FACTOR times as many
# documents as asked for are then compared exactly. If only some documents are asked for, all partitions are searched,
# because these may lie in any of them.
PARTITIONS, NEAREST_PARTITIONS = 256, 64
REFINE_FACTOR = 2


class IndexNotFound(ValueError):
    """A folder holds no index."""


class Signs(NamedTuple):
    """The signs of all sentence vectors of an index, in memory.

    Args:
        ids: (documents,), strings.
        words, firsts: see `hmde.index.codes.smallest_differences`.
    """

    ids: pa.StringArray
    words: np.ndarray
    firsts: np.ndarray


class UnknownLanguage(ValueError):
    """A language is asked for in which the index has no document."""


class InvalidCondition(ValueError):
    """A condition on documents is no SQL, names a column that the index does not have, or cannot be computed."""


@dataclass
class Snapshot:
    """An index as it was when it was opened. Later updates do not reach it; open it again to see them.

    Args:
        folder: of the index.
        table: one version of it.
        model: name or folder of the model that made the index.
        probe: (2 * hidden + 3,), see `Encoder.probe`.
        sentence_size: numbers of a sentence vector; 0 if the index keeps none.
        made: differs from index to index, also if one takes the place of another in the same folder.
    """

    folder: Path
    table: Table
    model: str
    probe: np.ndarray
    sentence_size: int
    made: str

    @property
    def keeps_sentences(self) -> bool:
        return self.sentence_size > 0

    @property
    def centre(self) -> np.ndarray:
        """(sentence_size,), from which the coded sentence vectors differ: a vector that is always the same."""
        return cut(sentence_of_probe(self.probe), self.sentence_size)

    @property
    def metadata_columns(self) -> list[str]:
        """The names of the documents' metadata."""
        return [name for name in self.table.schema.names if name not in RESERVED]

    @cached_property
    def languages(self) -> list[str]:
        """The languages of the documents, sorted. Documents without a language do not count."""
        with store_errors(self.folder):
            batches = self.table.search().select(["language"]).to_batches(ROWS_PER_BATCH)
            found = {language for batch in batches for language in pa.compute.unique(batch["language"]).to_pylist()}
        return sorted(found - {None})

    def __len__(self) -> int:
        return self.table.count_rows()

    def check(self, encoder: Encoder) -> None:
        """
        Raises:
            ValueError: the index was made by a model that computes other vectors.
        """
        if not encoder.matches(self.probe):
            raise ValueError(
                f"the index was made by another model ({self.model}) than {encoder.name}, so their vectors cannot be "
                "compared; query it with that model, or make a new index in another folder"
            )

    def condition(self, languages: Sequence[str] | None, where: str | None) -> str | None:
        """The SQL condition that documents are in some languages and meet a condition of a user; None for no condition.

        Raises:
            UnknownLanguage: the index has no document in a language.
            InvalidCondition: `where` is no condition on the columns of the index, or fails on one of its documents.
        """
        conditions = []
        if languages is not None:
            if unknown := sorted({*languages} - {*self.languages}):
                known = ", ".join(self.languages) or "none at all"
                raise UnknownLanguage(
                    f"the index has no documents in {', '.join(unknown)}; their languages are: {known}"
                )
            conditions.append(one_of("language", languages))
        if where is not None:
            # Whatever `where` holds ends inside the brackets of CAST, and IS TRUE takes nothing but a condition. The
            # line break ends a comment.
            conditions.append(f"CAST(({where}\n) IS TRUE AS BOOLEAN)")
            self._try_out(where, conditions[-1])
        return " AND ".join(conditions) or None

    def _try_out(self, where: str, condition: str) -> None:
        """Evaluates a condition on all documents, so that what fails later is no fault of it."""
        with store_errors(self.folder):
            self.table.count_rows("id IS NOT NULL")  # fails if the files of the index are damaged
        try:
            self.table.count_rows(condition)
        except Exception as error:  # a panic of LanceDB has a type of its own
            said = re.split(r", /|\(\w+ \{", str(error))[0]  # without its place in LanceDB, or the parsed condition
            reason = " ".join(re.sub("^Invalid input, |^lance error: ", "", said).split())
            raise InvalidCondition(
                f"{where!r} is no condition on documents, or fails on one of them ({reason}); write one in SQL, such "
                f"as \"language = 'de'\", on these columns: {', '.join([*DOCUMENT_COLUMNS, *self.metadata_columns])}"
            ) from None

    def nearest(self, query: np.ndarray, depth: int, where: str | None = None) -> dict[str, float]:
        """The cosines of the documents whose vectors are nearest to a query vector (hidden,), by id.

        Args:
            where: an SQL condition on documents; of all if None.
        """
        with store_errors(self.folder):
            search: Any = self.table.search(query, vector_column_name="vector")
            search = search.distance_type("dot").refine_factor(REFINE_FACTOR)
            search = search.nprobes(NEAREST_PARTITIONS if where is None else PARTITIONS)
            distances = _scores(search, "_distance", depth, where)
        return {id: 1 - distance for id, distance in distances.items()}

    def nearest_sentences(self, query: np.ndarray, depth: int, where: str | None = None) -> list[str]:
        """The ids of the documents that have the best sentences for a query vector (hidden,), as far as signs tell.
        Needs an index that keeps sentences."""
        ids, words, firsts = self.signs
        differences = smallest_differences(cut(query, self.sentence_size), self.centre, words, firsts)
        places = np.arange(len(ids))
        if where is not None:
            with store_errors(self.folder):
                wanted = self.table.search().where(where).select(["id"]).to_arrow()["id"]
            places = pa.compute.indices_nonzero(pa.compute.is_in(ids, wanted.combine_chunks())).to_numpy()
        if depth < len(places):
            places = places[np.argpartition(differences[places], depth)[:depth]]
        return ids.take(places).to_pylist()

    @cached_property
    def signs(self) -> Signs:
        """Read once: 50 bytes a sentence, for vectors of 384 numbers."""
        with store_errors(self.folder):
            rows = self.table.search().select(["id", "sentence_signs"]).to_arrow()
        signs = rows["sentence_signs"].combine_chunks()
        return Signs(rows["id"].combine_chunks(), in_words(_matrix(signs.flatten())), _firsts(rows))

    def bm25(self, terms: Sequence[str], depth: int, where: str | None = None) -> dict[str, float]:
        """The BM25 scores of the best documents that hold at least one of these terms, by id."""
        if not terms:
            return {}
        with store_errors(self.folder):
            search = self.table.search(" ".join(terms), query_type="fts", fts_columns="words")
            return _scores(search, "_score", depth, where)

    def documents(self, ids: Sequence[str]) -> list[Document]:
        """The documents with these ids, in their order."""
        names = self.metadata_columns
        documents = []
        for row in self.rows(ids, [*DOCUMENT_COLUMNS, "headings", *names]).to_pylist():
            metadata = {name: value for name in names if (value := row.pop(name)) is not None}
            headings = tuple((heading["begin"], heading["heading"]) for heading in row.pop("headings"))
            documents.append(Document(**row, metadata=metadata, headings=headings))
        return documents

    def vectors_and_languages(self, ids: Sequence[str]) -> tuple[np.ndarray, dict[str, str | None]]:
        """(documents, hidden), the vectors of the documents with these ids, and their languages by id."""
        rows = self.rows(ids, ["id", "vector", "language"])
        return _matrix(rows["vector"].combine_chunks()), dict(zip(ids, rows["language"].to_pylist()))

    def cosines_of_sentences(self, query: np.ndarray, ids: Sequence[str]) -> tuple[list[float], list[float]]:
        """The cosines of a query vector (hidden,) with the best sentence and with the first sentence of each document
        with these ids, in an index that keeps them."""
        rows = self.rows(ids, ["id", *CODE_COLUMNS])
        found, firsts = cosines(cut(query, self.sentence_size), _codes(rows), self.centre), _firsts(rows)
        return np.maximum.reduceat(found, firsts).tolist(), found[firsts].tolist()

    def sentences(self, ids: Sequence[str]) -> list[DocumentSentences]:
        """The sentences of the documents with these ids, in an index that keeps them."""
        rows = self.rows(ids, ["id", "spans", *CODE_COLUMNS])
        spans = [list(map(tuple, cell)) for cell in rows["spans"].to_pylist()]
        vectors = torch.from_numpy(self.sentence_vectors(rows)).split(list(map(len, spans)))
        return [*map(DocumentSentences, spans, vectors)]

    def sentence_vectors(self, rows: pa.Table) -> np.ndarray:
        """(sentences, sentence_size), float32, L2-normalised, of all documents of rows that hold CODE_COLUMNS."""
        return decode(_codes(rows), self.centre)

    def rows(self, ids: Sequence[str], columns: list[str]) -> pa.Table:
        """Columns of the documents with these ids, in their order. `id` must be one of the columns."""
        with store_errors(self.folder):
            found = self.table.search().where(one_of("id", ids)).select(columns).to_arrow()
        return found.take(pa.compute.index_in(pa.array(ids, pa.string()), found["id"].combine_chunks()))


def folder_of(index: str | Path) -> Path:
    """
    Raises:
        ValueError: it is a URL, which would be taken for a name.
    """
    if "://" in str(index):
        raise ValueError(f"{index} is a URL, and an index is a folder; copy it into one (aws s3 sync URL FOLDER)")
    return Path(index)


def is_index(folder: Path) -> bool:
    return (folder / f"{TABLE}.lance").is_dir()


def open_snapshot(folder: str | Path) -> Snapshot:
    """Opens the newest version of an index for reading, also while another process updates it. Takes milliseconds, so a
    program that runs for long can open it again for each query.

    Raises:
        IndexNotFound: the folder holds no index.
        ValueError: its files are damaged, or it has another FORMAT.
    """
    folder = folder_of(folder)
    if not is_index(folder):
        raise IndexNotFound(f"{folder} holds no index; make one with: hmde index DOCUMENTS {folder} --model MODEL")
    with store_errors(folder):
        table = lancedb.connect(folder).open_table(TABLE)
        metadata = table.schema.metadata or {}
    if (found := int(metadata.get(b"format", 1))) != FORMAT:
        raise ValueError(
            f"{folder} has format {found}, and this hmde reads and writes format {FORMAT}; index the documents again "
            "in another folder (hmde index DOCUMENTS NEW-INDEX), or install the hmde that made it"
        )
    probe, size = np.array(json.loads(metadata[b"probe"])), int(metadata[b"coded_size"])
    return Snapshot(folder, table, metadata[b"model"].decode(), probe, size, metadata[b"made"].decode())


@contextmanager
def store_errors(folder: str | Path) -> Iterator[None]:
    """Turns the errors of LanceDB into messages that name the folder and the remedy."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        number = re.search(r"\(os error (\d+)\)", str(error))  # with which Rust ends every error of the system
        code = int(number[1]) if number else 0
        if code == errno.ENOSPC:
            message = f"the disk of {folder} is full; make room and index again: what was committed is kept"
            raise OSError(errno.ENOSPC, message) from error
        if code in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise ValueError(f"{folder} may not be written by this user: {error}") from error
        raise ValueError(
            f"{folder} is damaged or not complete ({error}); the documents are where they were, so remove the folder "
            "and index them again"
        ) from error


def one_of(column: str, values: Iterable[str]) -> str:
    """The SQL condition that a column holds one of some strings.

    >>> one_of("id", ["a", "b's"])
    "id IN ('a', 'b''s')"
    """
    quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
    return f"{column} IN ({quoted})" if quoted else "false"


def _scores(search: Any, column: str, depth: int, where: str | None) -> dict[str, float]:
    """The column of scores that a LanceDB search returns, by document id."""
    if where is not None:
        search = search.where(where)
    return {row["id"]: row[column] for row in search.select(["id", column]).limit(depth).to_list()}


def _codes(rows: pa.Table) -> Codes:
    """Those of all sentences of rows that hold CODE_COLUMNS."""
    return Codes(*(_matrix(rows[name].combine_chunks().flatten()) for name in CODE_COLUMNS))


def _firsts(rows: pa.Table) -> np.ndarray:
    """(documents,), the place of each document's first sentence among those of rows that hold their signs."""
    counts = pa.compute.list_value_length(rows["sentence_signs"]).to_numpy()
    return np.cumsum(counts) - counts


def _matrix(rows: pa.FixedSizeListArray) -> np.ndarray:
    """(rows, numbers), without a Python object for each number."""
    return rows.flatten().to_numpy().reshape(len(rows), rows.type.list_size)
