"""What a corpus holds, in numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from training.corpus.database import count_by, count_rows, read_parquet
from training.corpus.subsample import LANGUAGE_PAIR

PAPER_TRIPLES = {  # paper, section 3.1
    ("de", "en", "fr", "it"): 1_100_000,
    ("ar", "el", "en", "fa", "fi", "fr", "hu", "ja", "ms", "ru", "tr", "zh"): 592_000,
}


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
    lengths = connection.execute(
        f"""
        SELECT language, count(*), quantile_disc(length(text), 0.5), quantile_disc(length(text), 0.9),
               round(avg(coalesce(len(categories), 0)), 2)
        FROM {articles} GROUP BY language ORDER BY language
        """
    ).fetchall()
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
    paper = PAPER_TRIPLES.get(tuple(sorted(recipe["languages"])))
    return {
        "recipe": recipe,
        "articles": {language: count for language, count, *_ in lengths},
        "concepts": concepts,
        "pairs": pairs,
        "pairs_without_triple": pairs - num_triples,
        "triples": count_by(connection, triples, "split"),
        "triples_by_languages": count_by(connection, triples, LANGUAGE_PAIR),
        "triples_by_anchor": count_by(connection, triples, "anchor_language"),
        "triples_of_the_paper": paper if recipe["source"].startswith("wiki") else None,
        "triples_in_all": num_triples,
        "read": read,
        "dumps": dumps,
        "characters": {language: {"median": half, "p90": most} for language, _, half, most, _ in lengths},
        "categories_per_article": {language: mean for language, *_, mean in lengths},
        "sources": [list(row) for row in sources],
    }
