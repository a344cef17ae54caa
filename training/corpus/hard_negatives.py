"""Triples of an anchor, a positive and hard negatives, drawn by `hard_negatives.sql`. Knows ids only, no texts."""

from __future__ import annotations

from pathlib import Path

import duckdb

from training.corpus.database import define_draw, read_parquet, write_parquet

TRIPLE_COLUMNS = (
    "concept_id",  # of anchor and positive
    "anchor_language",
    "positive_language",
    "category",  # shared by anchor and negative, NULL where a model found the negative
    "negative_id",  # concept of the hard negative in the anchor's language
    "positive_negative_id",  # concept of the hard negative in the positive's language, NULL where there is none
    "split",
)
NO_NEIGHBOUR = "SELECT '' AS language, '' AS concept_id, '' AS negative_id WHERE false"
QUERY = Path(__file__).with_name("hard_negatives.sql").read_text(encoding="utf-8")


def draw_triples(
    connection: duckdb.DuckDBPyConnection,
    articles: list[Path],
    target: Path,
    *,
    neighbours: Path | None = None,
    category_limit: int,
    seed: int,
) -> None:
    """Writes every pair of languages of every concept, with a hard negative for each side, in `TRIPLE_COLUMNS`.

    A pair whose anchor shares no category with another article of its language and split, and has no neighbour, is left
    out.

    Args:
        articles: article tables in Parquet.
        neighbours: language, concept_id and negative_id, a hard negative that a model found, in Parquet.
        category_limit: number of articles above which a category is drawn less often.
    """
    define_draw(connection, seed)
    connection.execute(
        f"""
        CREATE OR REPLACE VIEW article AS FROM {read_parquet(*articles)};
        CREATE OR REPLACE VIEW article_category AS
        SELECT language, split, concept_id, unnest(categories) AS category FROM article;
        CREATE OR REPLACE VIEW neighbour AS {f"FROM {read_parquet(neighbours)}" if neighbours else NO_NEIGHBOUR}
        """
    )
    write_parquet(connection, QUERY.format(category_limit=category_limit), target)
