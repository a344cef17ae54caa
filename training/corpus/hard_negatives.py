"""Triples of an anchor, a positive and hard negatives, drawn by `hard_negatives.sql`. Knows ids only, no texts."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb

from training.corpus.database import define_draw, read_parquet, write_parquet
from training.corpus.recipe import Engine

TRIPLE_COLUMNS = (
    "concept_id",  # of anchor and positive
    "anchor_language",
    "positive_language",
    "category",  # shared by anchor and negative
    "negative_id",  # concept of the hard negative in the anchor's language
    "positive_negative_id",  # concept of the hard negative in the positive's language, NULL where there is none
    "split",
)
QUERY = Path(__file__).with_name("hard_negatives.sql").read_text(encoding="utf-8")


def draw_triples(
    connection: duckdb.DuckDBPyConnection,
    articles: list[Path],
    target: Path,
    *,
    category_limit: int,
    seed: int,
    engine: Engine = "duckdb",
) -> None:
    """Writes every pair of languages of every concept, with a hard negative for each side, in `TRIPLE_COLUMNS`.

    A pair whose anchor shares no category with another article of its language and split is left out.

    Args:
        articles: article tables in Parquet.
        category_limit: number of articles above which a category is drawn less often.
        engine: duckdb, out of core on this machine; or spark, on the cluster that `spark-submit` or the environment
            names, which must see the article tables under the same paths.
    """
    query = QUERY.format(category_limit=category_limit)
    if engine == "spark":
        folder = target.with_name(target.name + ".spark")
        _draw_with_spark(query, articles, folder, seed)
        rows = read_parquet(folder)
        query = f"SELECT * FROM {rows} ORDER BY split, concept_id, anchor_language, positive_language"
    else:
        define_draw(connection, seed)
        connection.execute(
            f"""
            CREATE OR REPLACE VIEW article AS FROM {read_parquet(*articles)};
            CREATE OR REPLACE VIEW article_category AS
            SELECT language, split, concept_id, unnest(categories) AS category FROM article
            """
        )
    write_parquet(connection, query, target)


def _draw_with_spark(query: str, articles: list[Path], target: Path, seed: int) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("hmde-corpus").getOrCreate()
    try:
        # Spark takes these signs in a path that it reads for a pattern.
        paths = [re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path)) for path in articles]
        spark.read.parquet(*paths).createOrReplaceTempView("article")
        spark.sql(
            """
            CREATE OR REPLACE TEMPORARY VIEW article_category AS
            SELECT language, split, concept_id, explode(categories) AS category FROM article
            """
        )
        spark.sql(
            f"""
            CREATE OR REPLACE TEMPORARY FUNCTION draw(key STRING) RETURNS BIGINT
            RETURN CAST(conv(substr(md5(CAST(concat('{seed:d}|', key) AS BINARY)), 1, 15), 16, 10) AS BIGINT)
            """
        )
        spark.sql(query).write.mode("overwrite").parquet(str(target))
    finally:
        spark.stop()
