"""Python values in SQL."""

from __future__ import annotations

from pathlib import Path


def quoted(value: str | Path) -> str:
    """A string literal of SQL.

    >>> quoted("runs/l'article.parquet")
    "'runs/l''article.parquet'"
    """
    return "'" + str(value).replace("'", "''") + "'"
