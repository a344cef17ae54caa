"""The collection of an index in PostgreSQL with pgvector, for those who outgrow a machine or have a server already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
from pgvector.psycopg import register_vector

from search.index import DOCUMENT_COLUMNS, Index

# Rows of an index that are in memory at once.
ROWS_PER_BATCH = 256

# Vectors are of unit length, so the inner product, which <#> negates, is the cosine.
TABLES = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE SCHEMA IF NOT EXISTS hmde;
CREATE TABLE IF NOT EXISTS hmde.documents (
    id text PRIMARY KEY, title text NOT NULL, language text, text text NOT NULL, vector vector({size}) NOT NULL
);
CREATE TABLE IF NOT EXISTS hmde.sentences (
    document text REFERENCES hmde.documents ON DELETE CASCADE, number integer, begins integer NOT NULL,
    ends integer NOT NULL, vector vector({size}) NOT NULL, PRIMARY KEY (document, number)
);
LOCK TABLE hmde.documents IN SHARE ROW EXCLUSIVE MODE
"""

# The ranking `vector` of an index: query is the embedding of a question, languages a list or NULL.
NEAREST = """
SELECT id, -(vector <#> %(query)s) AS score
FROM hmde.documents
WHERE %(languages)s::text[] IS NULL OR language = ANY(%(languages)s)
ORDER BY score DESC, id
LIMIT %(hits)s
"""


def copy_to_postgres(index: Index, url: str) -> int:
    """Makes the tables hmde.documents and hmde.sentences of a database the collection of an index.

    In one transaction: who reads meanwhile sees the collection before. Another copy waits. `hmde.sentences` is empty
    where the index keeps no sentence vectors; a sentence is substr(text, begins + 1, ends - begins) of its document.
    PostgreSQL has no character 0, which becomes U+FFFD. Indexes that were made on the tables stay.

    Args:
        index: an opened one.
        url: of the database, or "" where the variables PGHOST, PGDATABASE and so on say it.

    Returns:
        how many documents it now has.

    Raises:
        ValueError: the server cannot be reached, or refuses, for example because it lacks pgvector.
    """
    size = index.table.schema.field("vector").type.list_size
    try:
        with psycopg.connect(url) as connection:
            connection.execute(TABLES.format(size=size))
            register_vector(connection)
            connection.execute("DELETE FROM hmde.documents")
            count = _copy(connection, "documents", _documents(index))
            if index.keeps_sentences:
                _copy(connection, "sentences", _sentences(index))
    except psycopg.Error as error:
        raise ValueError(f"the database was left as it was: {str(error).strip()}") from error
    return count


def _copy(connection: psycopg.Connection, table: str, rows: Iterator[tuple]) -> int:
    count = 0
    with connection.cursor() as cursor, cursor.copy(f"COPY hmde.{table} FROM STDIN".encode()) as copy:
        for count, row in enumerate(rows, start=1):  # noqa: B007, the last count is the result
            copy.write_row([value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in row])
    return count


def _documents(index: Index) -> Iterator[tuple]:
    for row in _rows(index, [*DOCUMENT_COLUMNS, "vector"]):
        yield (*(row[column] for column in DOCUMENT_COLUMNS), np.array(row["vector"], np.float32))


def _sentences(index: Index) -> Iterator[tuple]:
    for row in _rows(index, ["id", "spans", "sentence_vectors"]):
        for number, (span, vector) in enumerate(zip(row["spans"], row["sentence_vectors"])):
            yield row["id"], number, *span, np.array(vector, np.float32)


def _rows(index: Index, columns: list[str]) -> Iterator[dict[str, Any]]:
    for batch in index.table.search().select(columns).to_batches(ROWS_PER_BATCH):
        yield from batch.to_pylist()
