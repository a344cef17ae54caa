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
    dumps: dict[str, dict[str, int]],
) -> dict[str, Any]:
    """Counts of a written corpus.

    Args:
        folder: that of the articles and triples.
        read: what was counted when the articles of each language were read.
        dumps: what was counted in the SQL dumps of each language.
    """
    articles, triples = read_parquet(folder / "articles"), read_parquet(folder / "triples.parquet")
    counts = f"SELECT count(*) AS languages FROM {articles} GROUP BY concept_id HAVING languages > 1"
    pairs = f"SELECT count(*), coalesce(sum(languages * (languages - 1) // 2), 0)::BIGINT FROM ({counts})"
    concepts, num_pairs = connection.execute(pairs).fetchall()[0]
    sources = f"SELECT source, license, count(*) FROM {articles} GROUP BY ALL ORDER BY ALL"
    num_triples = count_rows(connection, f"FROM {triples}")
    return {
        "recipe": recipe,
        "articles": count_by(connection, articles, "language"),
        "concepts": concepts,
        "pairs": num_pairs,
        "pairs_without_triple": num_pairs - num_triples,
        "triples": count_by(connection, triples, "split"),
        "triples_by_languages": count_by(connection, triples, LANGUAGE_PAIR),
        "triples_by_anchor": count_by(connection, triples, "anchor_language"),
        "triples_in_all": num_triples,
        "read": read,
        "dumps": dumps,
        "sources": [list(row) for row in connection.execute(sources).fetchall()],
    }
