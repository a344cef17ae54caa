"""Copies an index into PostgreSQL with pgvector, for collections that outgrow one machine or a server that exists."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import psycopg
import pyarrow as pa
from pgvector.psycopg import register_vector

from search.snapshot import CODE_COLUMNS, DOCUMENT_COLUMNS, Snapshot, store_errors

# Rows of an index that are in memory at once.
ROWS_PER_BATCH = 256

# Vectors are L2-normalised, so the inner product, which <#> negates, is the cosine.
DOCUMENTS_TABLE = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE SCHEMA IF NOT EXISTS hmde;
CREATE TABLE IF NOT EXISTS hmde.documents (
    id text PRIMARY KEY, title text NOT NULL, language text, text text NOT NULL, vector vector({size}) NOT NULL
);
LOCK TABLE hmde.documents IN SHARE ROW EXCLUSIVE MODE
"""
SENTENCES_TABLE = """
CREATE TABLE IF NOT EXISTS hmde.sentences (
    document text REFERENCES hmde.documents ON DELETE CASCADE, number integer, begins integer NOT NULL,
    ends integer NOT NULL, vector halfvec({size}) NOT NULL, PRIMARY KEY (document, number)
)
"""

# The ranking `dense` of an index: query is the embedding of a query, languages a list or NULL.
NEAREST = """
SELECT id, -(vector <#> %(query)s) AS score
FROM hmde.documents
WHERE %(languages)s::text[] IS NULL OR language = ANY(%(languages)s)
ORDER BY score DESC, id
LIMIT %(hits)s
"""


def copy_to_postgres(index: Snapshot, url: str) -> int:
    """Replaces the rows of the tables hmde.documents and hmde.sentences of a database by those of an index.

    All happens in one transaction: other users see the rows as they were until it ends, and another copy waits.
    `hmde.sentences` has no row, or is not made, if the index keeps no sentence vectors; a sentence is
    substr(text, begins + 1, ends - begins) of its document. The character 0, which PostgreSQL does not allow, becomes
    U+FFFD. Indexes that users made on the tables stay.

    Args:
        index: the documents.
        url: of the database, or "" if the environment variables PGHOST, PGDATABASE and so on name it.

    Returns:
        the number of documents.

    Raises:
        ValueError: the server cannot be reached or refuses, for example because it lacks pgvector; or the index is
            damaged.
    """
    size = index.table.schema.field("vector").type.list_size
    try:
        with psycopg.connect(url) as connection:
            connection.execute(DOCUMENTS_TABLE.format(size=size))
            register_vector(connection)
            connection.execute("DELETE FROM hmde.documents")
            _copy(connection, "documents", _documents(index))
            if index.keeps_sentences:
                connection.execute(SENTENCES_TABLE.format(size=index.sentence_size))
                _copy(connection, "sentences", _sentences(index))
    except psycopg.Error as error:
        raise ValueError(f"the database was left as it was: {str(error).strip()}") from error
    return len(index)


def _copy(connection: psycopg.Connection, table: str, rows: Iterator[tuple]) -> None:
    with connection.cursor() as cursor, cursor.copy(f"COPY hmde.{table} FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row([value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in row])


def _documents(index: Snapshot) -> Iterator[tuple]:
    for rows in _rows(index, [*DOCUMENT_COLUMNS, "vector"]):
        for row in rows.to_pylist():
            yield (*(row[column] for column in DOCUMENT_COLUMNS), np.array(row["vector"], np.float32))


def _sentences(index: Snapshot) -> Iterator[tuple]:
    for rows in _rows(index, ["id", "spans", *CODE_COLUMNS]):
        vectors = iter(index.sentence_vectors(rows))
        for id, spans in zip(rows["id"].to_pylist(), rows["spans"].to_pylist()):
            for number, span in enumerate(spans):
                yield id, number, *span, next(vectors)


def _rows(index: Snapshot, columns: list[str]) -> Iterator[pa.Table]:
    with store_errors(index.folder):
        for batch in index.table.search().select(columns).to_batches(ROWS_PER_BATCH):
            yield pa.Table.from_batches([batch])
