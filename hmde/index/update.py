"""Writing: an index becomes the index of some documents. One process at a time may update an index; others wait."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import compress
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import FTS, BTree, IvfSq

from hmde.common.files import folder_written_whole, locked
from hmde.common.progress import Advance, progress_bar
from hmde.documents.documents import Document, Documents, check_apart, distinct
from hmde.index.bm25 import document_terms
from hmde.index.codes import encode
from hmde.index.encoder import Encoder, cut
from hmde.index.hits import file_of
from hmde.index.precomputed import PrecomputedEmbeddings
from hmde.index.snapshot import (
    CODE_COLUMNS,
    DOCUMENT_COLUMNS,
    FORMAT,
    PARTITIONS,
    ROWS_PER_BATCH,
    TABLE,
    Snapshot,
    folder_of,
    is_index,
    one_of,
    open_snapshot,
    store_errors,
)
from modeling_hmde.inference_hmde import read_ahead

# Documents that are encoded before they are committed; a process that is killed loses no more than these.
DOCUMENTS_PER_COMMIT = 1024

# An index with at least so many documents is searched approximately; comparing all of them takes a tenth of a second.
APPROXIMATE_FROM = 50_000

# BM25 counts the words of so many characters at the beginning of a document, which is a long novel. Words take ten
# times the memory of their text.
CHARACTERS_OF_WORDS = 2**21

# How long an old version stays on disk, for those who still read it, after a newer one has taken its place.
READING_TIME = timedelta(minutes=10)

METADATA_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


class Changes(NamedTuple):
    """How many documents an update added, changed, removed and left as they were; and of those that it added or
    changed, how many are longer than the model reads, which is said of each."""

    added: int
    changed: int
    removed: int
    unchanged: int
    truncated: int = 0


def update_index(
    folder: str | Path,
    documents: Iterable[Document],
    encoder: Encoder,
    *,
    keep_others: bool = False,
    sentences: bool | None = None,
    embeddings: PrecomputedEmbeddings | None = None,
    show_progress_bar: bool = False,
) -> Changes:
    """As `Index.update`, whose arguments and errors these are, or, with `keep_others`, as `Index.add`.

    Commits every DOCUMENTS_PER_COMMIT documents; a killed process that is started again resumes at the last commit.
    Memory holds the texts of two commits, and the ids, titles and metadata of all documents.
    """
    folder = folder_of(folder)
    if isinstance(documents, Iterator):
        raise TypeError("documents are read twice; give a list or a Documents, not an iterator")
    if isinstance(documents, Documents):
        check_apart(folder, Path(documents.source))
    if sentences and embeddings is not None:
        raise ValueError("sentences is True, but precomputed embeddings hold no sentences; leave one of the two out")
    count, metadata = _survey(documents)
    with locked(folder):
        if not is_index(folder):
            _create(folder, encoder, embeddings is None if sentences is None else sentences)
        index = open_snapshot(folder)
        index.check(encoder)
        if sentences is not None and sentences != index.keeps_sentences:
            kept = "sentence vectors" if index.keeps_sentences else "no sentence vectors"
            raise ValueError(f"{folder} keeps {kept}, but sentences is {sentences}; make a new index in another folder")
        if embeddings is not None and index.keeps_sentences:
            raise ValueError(
                f"{folder} keeps sentences, whose vectors are not among precomputed embeddings; make an index without "
                "sentences in another folder, or leave the embeddings out"
            )
        _keep_metadata(index, metadata)
        stored = _stored_states(index)
        # What is read here is read by a thread while the model computes; what else may be bound to the thread it is of.
        reading = read_ahead(documents, DOCUMENTS_PER_COMMIT) if isinstance(documents, Documents) else documents
        with progress_bar("index" if show_progress_bar else "", count, unit="document") as progress:
            changes = _write_changes(index, stored, distinct(reading), encoder, embeddings, progress.update)
        unread = documents.unreadable if isinstance(documents, Documents) else {}
        removed = [] if keep_others else [id for id in stored if file_of(id) not in unread]
        _remove_all(index, removed)
        _tidy(index)
    return changes._replace(removed=len(removed))


def remove_documents(folder: str | Path, ids: Iterable[str]) -> int:
    """Removes documents from an index; ids that it does not hold are ignored.

    Returns:
        how many documents were removed.

    Raises:
        TypeError: `ids` is one string.
        IndexNotFound, ValueError: as `open_snapshot`.
    """
    if isinstance(ids, str):
        raise TypeError(f"ids is the string {ids!r}; give a list of ids, such as [{ids!r}]")
    with locked(folder_of(folder)):
        index = open_snapshot(folder)
        count = len(index)
        _remove_all(index, list(ids))
        return count - len(index)


def _survey(documents: Iterable[Document]) -> tuple[int, dict[str, type]]:
    """How many documents there are, and of which type their metadata are, by name.

    Raises:
        ValueError: an id is used twice, or metadata of one name are of several types.
    """
    count, types = 0, dict[str, type]()
    for document in distinct(documents):
        count += 1
        for name, value in document.metadata.items():
            before = types.setdefault(name, type(value))
            if {before, type(value)} == {int, float}:
                types[name] = float
            elif before is not type(value):
                raise ValueError(
                    f"{document.id}: {name} is {value!r}, and of another document it is of type {before.__name__}; "
                    "make them alike"
                )
    return count, types


def _keep_metadata(index: Snapshot, types: dict[str, type]) -> None:
    """Makes the columns for metadata that the index lacks. Types as `_survey` gives them.

    Raises:
        ValueError: the index keeps metadata of this name, but of another type.
    """
    columns = {name: METADATA_TYPES[kind] for name, kind in types.items()}
    for name, column in columns.items():
        stored = index.table.schema.field(name).type if name in index.metadata_columns else column
        if stored != column and not (pa.types.is_floating(stored) and pa.types.is_integer(column)):
            raise ValueError(f"{name} is of type {column}, but the index keeps it as {stored}; make them alike")
    new = [pa.field(name, column) for name, column in columns.items() if name not in index.metadata_columns]
    if new:
        with store_errors(index.folder):
            index.table.add_columns(pa.schema(new))


def _create(folder: Path, encoder: Encoder, sentences: bool) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty and holds no index of this version; name another folder")
    vector = pa.list_(pa.float32(), encoder.model.config.hidden_size)
    columns = dict.fromkeys([*DOCUMENT_COLUMNS, "content_hash", "words"], pa.string()) | {"vector": vector}
    columns["headings"] = pa.list_(pa.struct({"begin": pa.int32(), "heading": pa.string()}))
    size = encoder.sentence_size if sentences else 0
    if sentences:
        columns["spans"] = pa.list_(pa.list_(pa.int32(), 2))
        for name, codes in zip(CODE_COLUMNS, encode(np.empty((0, size)), np.empty(size))):
            columns[name] = pa.list_(pa.list_(pa.uint8(), codes.shape[1]))
    probe = json.dumps(encoder.probe().tolist())
    metadata = {
        "model": encoder.name,
        "format": str(FORMAT),
        "probe": probe,
        "coded_size": str(size),
        "made": uuid4().hex,
    }
    # hmde/index/bm25.py has already lowered and stemmed the words. LanceDB would leave out those of 40 bytes or more.
    bm25 = FTS(
        base_tokenizer="whitespace",
        lower_case=False,
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
        max_token_length=None,
    )
    with folder_written_whole(folder) as partial, store_errors(folder):
        table = lancedb.connect(partial).create_table(TABLE, schema=pa.schema(columns, metadata))
        table.create_index("words", config=bm25)
        table.create_index("id", config=BTree())


def _write_changes(
    index: Snapshot,
    stored: dict[str, tuple],
    documents: Iterable[Document],
    encoder: Encoder,
    embeddings: PrecomputedEmbeddings | None,
    advance: Advance,
) -> Changes:
    """Adds and replaces; takes the documents that it meets out of `stored`."""
    counts: Counter[str] = Counter()
    metadata = index.metadata_columns
    encoded = {content_hash: id for id, (content_hash, *_) in stored.items()}
    writers = {"added": _add, "changed": _replace}
    waiting: dict[str, list[Document]] = {change: [] for change in writers}

    def write(change: str) -> None:
        rows = _rows(index, waiting[change], encoded, encoder, embeddings)
        writers[change](index, rows)
        counts["truncated"] += encoder.name_truncated(waiting[change])
        waiting[change].clear()

    for document in documents:
        before = stored.pop(document.id, None)
        change = "added" if before is None else "unchanged" if before == _state(document, metadata) else "changed"
        counts[change] += 1
        advance(1)
        if change != "unchanged":
            waiting[change].append(document)
            if len(waiting[change]) == DOCUMENTS_PER_COMMIT:
                write(change)
    for change, rest in waiting.items():
        if rest:
            write(change)
    return Changes(counts["added"], counts["changed"], 0, counts["unchanged"], counts["truncated"])


def _stored_states(index: Snapshot) -> dict[str, tuple]:
    """`_state` of each document of an index, by id."""
    columns = ["id", "content_hash", "title", "headings", *index.metadata_columns]
    states = {}
    with store_errors(index.folder):
        for batch in index.table.search().select(columns).to_batches(ROWS_PER_BATCH):
            for id, *state in zip(*(batch[name].to_pylist() for name in columns)):
                states[id] = tuple(state)
    return states


def _state(document: Document, metadata: Sequence[str]) -> tuple:
    """Differs from the stored state of the same id if the document has changed."""
    return document.content_hash, document.title, _cell(document.headings), *map(document.metadata.get, metadata)


def _cell(headings: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """Headings as an index keeps them."""
    return [{"begin": begin, "heading": heading} for begin, heading in headings]


def _rows(
    index: Snapshot,
    documents: Sequence[Document],
    encoded: dict[str, str],
    encoder: Encoder,
    embeddings: PrecomputedEmbeddings | None,
) -> pa.Table:
    """The rows of documents. Those whose text the index holds already, also under another id, keep its vectors.

    Args:
        encoded: by content hash, the id of a document that the index held when the update began.
    """
    twins = [encoded.get(document.content_hash) for document in documents]
    rows = index.rows([id for id in twins if id is not None], index.table.schema.names)
    hashes = [document.content_hash for document, id in zip(documents, twins) if id is not None]
    # A twin that has been replaced meanwhile has other vectors.
    same = iter([*map(eq, rows["content_hash"].to_pylist(), hashes)])
    kept = [id is not None and next(same) for id in twins]
    rows = rows.filter(pa.array([keep for keep, id in zip(kept, twins) if id is not None], pa.bool_()))
    described = _described(index, list(compress(documents, kept)))
    for name, values in described.items():
        place, field = rows.schema.get_field_index(name), rows.schema.field(name)
        rows = rows.set_column(place, field, pa.array(values, field.type))
    others = [document for document, keep in zip(documents, kept) if not keep]
    return pa.concat_tables([rows, _encoded(index, others, encoder, embeddings)])


def _add(index: Snapshot, rows: pa.Table) -> None:
    with store_errors(index.folder):
        index.table.add(rows)


def _replace(index: Snapshot, rows: pa.Table) -> None:
    with store_errors(index.folder):
        index.table.merge_insert("id").when_matched_update_all().execute(rows)


def _remove_all(index: Snapshot, ids: Sequence[str]) -> None:
    for first in range(0, len(ids), DOCUMENTS_PER_COMMIT):
        _remove(index, ids[first : first + DOCUMENTS_PER_COMMIT])


def _remove(index: Snapshot, ids: Sequence[str]) -> None:
    with store_errors(index.folder):
        index.table.delete(one_of("id", ids))


def _described(index: Snapshot, documents: Sequence[Document]) -> dict[str, Any]:
    """The columns of documents that need no model."""
    columns: dict[str, Any] = {name: [getattr(document, name) for document in documents] for name in DOCUMENT_COLUMNS}
    columns["headings"] = [_cell(document.headings) for document in documents]
    for name in index.metadata_columns:
        columns[name] = [document.metadata.get(name) for document in documents]
    return columns


def _encoded(
    index: Snapshot, documents: Sequence[Document], encoder: Encoder, embeddings: PrecomputedEmbeddings | None
) -> pa.Table:
    """The rows of documents."""
    columns = _described(index, documents)
    columns["content_hash"] = [document.content_hash for document in documents]
    with ThreadPoolExecutor(max_workers=1) as thread:
        words = thread.submit(list, map(_words, documents))
        columns |= _vectors(index, documents, encoder, embeddings)
    return pa.table(columns | {"words": words.result()}, schema=index.table.schema)


def _words(document: Document) -> str:
    return " ".join(document_terms(document.text[:CHARACTERS_OF_WORDS], document.language))


def _vectors(
    index: Snapshot, documents: Sequence[Document], encoder: Encoder, embeddings: PrecomputedEmbeddings | None
) -> dict[str, Any]:
    """The columns of documents that the model makes."""
    if index.keeps_sentences:
        vectors, sentences = encoder.encode_with_sentences(documents)
        columns = {"vector": list(vectors), "spans": [document.spans for document in sentences]}
        rows = np.concatenate([vectors[:0], *(document.vectors.numpy() for document in sentences)])
        ends = np.cumsum([0, *(len(document.spans) for document in sentences)])
        for name, codes in zip(CODE_COLUMNS, encode(cut(rows, index.sentence_size), index.centre)):
            cells = pa.FixedSizeListArray.from_arrays(codes.ravel(), codes.shape[1])
            columns[name] = pa.ListArray.from_arrays(ends, cells)
        return columns
    found = embeddings.find(documents) if embeddings is not None else [None] * len(documents)
    missing = [document for document, vector in zip(documents, found) if vector is None]
    encoded = iter(encoder.encode(missing) if missing else ())
    return {"vector": [next(encoded) if vector is None else vector for vector in found]}


def _tidy(index: Snapshot) -> None:
    """Merges the small files that commits wrote, brings LanceDB's indexes up to date, makes the one for approximate
    search if there are many documents, and removes versions that nobody reads any more."""
    with store_errors(index.folder):
        ages = [datetime.now() - version["timestamp"] for version in index.table.list_versions()]
        index.table.optimize(cleanup_older_than=_age_of_unread(ages), delete_unverified=True)
        indexed = {column for kept in index.table.list_indices() for column in kept.columns}
        if len(index) >= APPROXIMATE_FROM and "vector" not in indexed:
            index.table.create_index("vector", config=IvfSq(distance_type="dot", num_partitions=PARTITIONS))


def _age_of_unread(ages: Iterable[timedelta]) -> timedelta:
    """The age from which on versions may be removed. A version is superseded at the age of the next one, so the
    youngest version older than READING_TIME must stay, and all before it may go.

    >>> print(_age_of_unread(timedelta(minutes=minutes) for minutes in (90, 30, 3)))
    0:31:00
    """
    return min((age for age in ages if age > READING_TIME), default=READING_TIME) + timedelta(minutes=1)
