"""Python values in SQL."""

from __future__ import annotations

from glob import escape
from pathlib import Path


def quoted(value: str | Path) -> str:
    """A string literal of SQL.

    >>> quoted("runs/l'article.parquet")
    "'runs/l''article.parquet'"
    """
    return "'" + str(value).replace("'", "''") + "'"


def readable(path: str | Path, pattern: str = "") -> str:
    """A string literal of a path to read; or of the files of a folder that match a pattern, such as `*.parquet`.

    DuckDB takes `*`, `?` and `[` in a path that it reads for a pattern, and in one that it writes for themselves.

    >>> readable(Path("runs[1]"), "*.parquet")
    "'runs[[]1]/*.parquet'"
    """
    return quoted(Path(escape(str(path))) / pattern)
