"""DuckDB: values in its SQL, tables as Parquet, draws that a seed decides, and its memory limit."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any

import duckdb

from hmde.common.files import file_written_whole

SECONDS = 5.0  # what takes less shows no progress


def quoted(value: str | Path) -> str:
    """A string literal of SQL.

    >>> quoted("runs/l'article.parquet")
    "'runs/l''article.parquet'"
    """
    return "'" + str(value).replace("'", "''") + "'"


def read_parquet(*paths: Path) -> str:
    """A table of SQL: the rows of all these files; of a folder, the rows of its Parquet files.

    DuckDB takes `*`, `?` and `[` in a path that it reads for a pattern, and in one that it writes for themselves.

    >>> read_parquet(Path("runs[1]/de.parquet"))
    "read_parquet(['runs[[]1]/de.parquet'])"
    """
    files = [Path(escape(str(path))) / ("*.parquet" if path.is_dir() else "") for path in paths]
    return f"read_parquet([{', '.join(map(quoted, files))}])"


def write_parquet(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    target: Path,
    parameters: list[Any] | None = None,
    compression: str = "snappy",
) -> None:
    """Writes the rows of a query. The file is there whole or not at all."""
    with file_written_whole(target) as partial:
        options = f"FORMAT parquet, COMPRESSION {compression}"
        connection.execute(f"COPY ({query}) TO {quoted(partial)} ({options})", parameters)


def count_rows(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    return connection.execute(f"SELECT count(*) FROM ({query})").fetchall()[0][0]


def count_by(connection: duckdb.DuckDBPyConnection, table: str, key: str) -> dict[str, int]:
    """The number of rows for each value of `key`, an expression of SQL, in the order of the values."""
    return dict(connection.execute(f"SELECT {key} AS key, count(*) FROM {table} GROUP BY key ORDER BY key").fetchall())


def define_draw(connection: duckdb.DuckDBPyConnection, seed: int) -> None:
    """Gives DuckDB `draw(key)`, an integer in [0, 2^60) that depends on the seed and the key only."""
    connection.execute(
        f"CREATE OR REPLACE MACRO draw(key) AS CAST('0x' || substr(md5('{seed:d}|' || key), 1, 15) AS BIGINT)"
    )


def drawn_split(dev_fraction: float, test_fraction: float) -> str:
    """An expression of SQL: train, dev or test, drawn for `concept_id`. Needs `define_draw`."""
    draw = "draw('split|' || concept_id) % 1000000"
    dev, dev_and_test = round(dev_fraction * 1e6), round((dev_fraction + test_fraction) * 1e6)
    return f"CASE WHEN {draw} < {dev} THEN 'dev' WHEN {draw} < {dev_and_test} THEN 'test' ELSE 'train' END"


@contextmanager
def database(output: Path, memory_limit: str, threads: int | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory, for a command that writes `output`. What exceeds the memory limit goes to disk, into the
    folder of the command's steps.

    Raises:
        ValueError: the memory limit is no size, or too low for the block.
        OSError: the disk is full; says how to continue.
    """
    again = "run the command again; it continues after the last finished step"
    try:
        with duckdb.connect(config={"temp_directory": f"{output}.steps/spilled"}) as connection:
            connection.execute(f"SET enable_progress_bar = {sys.stdout.isatty()}")  # of queries that take seconds
            if threads is not None:
                connection.execute(f"SET threads = {threads:d}")
            try:
                connection.execute("SET memory_limit = $1", [memory_limit])
            except (duckdb.InvalidInputException, duckdb.ParserException) as error:
                raise ValueError(f"memory_limit is {memory_limit!r}, no size such as 4GB: {error}") from None
            yield connection
    except duckdb.OutOfMemoryException as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"memory_limit is too low ({reason}); raise it and {again}") from None
    except (OSError, duckdb.Error) as error:
        if getattr(error, "errno", None) != errno.ENOSPC and "No space left" not in str(error):
            raise
        raise OSError(errno.ENOSPC, f"the disk of {output} is full ({error}); free some space and {again}") from None
