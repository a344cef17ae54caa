"""What a corpus holds, in numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from training.corpus.database import count_by, count_rows, read_parquet
from training.corpus.subsample import LANGUAGE_PAIR


def corpus_statistics(
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    recipe: dict[str, Any],
    read: dict[str, dict[str, int]],
) -> dict[str, Any]:
    """Counts of a written corpus.

    Args:
        folder: that of the articles and triples.
        read: what was counted when the articles of each language were read.
    """
    articles, triples = read_parquet(folder / "articles"), read_parquet(folder / "triples.parquet")
    concepts, pairs = connection.execute(
        f"""
        SELECT count(*), coalesce(sum(languages * (languages - 1) // 2), 0)::BIGINT
        FROM (SELECT count(*) AS languages FROM {articles} GROUP BY concept_id HAVING languages > 1)
        """
    ).fetchall()[0]
    sources = connection.execute(
        f"SELECT source, license, count(*) FROM {articles} GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    num_triples = count_rows(connection, f"FROM {triples}")
    return {
        "recipe": recipe,
        "articles": count_by(connection, articles, "language"),
        "concepts": concepts,
        "pairs": pairs,
        "pairs_without_triple": pairs - num_triples,
        "triples": count_by(connection, triples, "split"),
        "triples_by_languages": count_by(connection, triples, LANGUAGE_PAIR),
        "triples_in_all": num_triples,
        "read": read,
        "sources": [list(row) for row in sources],
    }
