"""Triples from articles that know their concept and their categories. Knows ids only, no texts.

One query for two engines, DuckDB in this process and Spark SQL on a cluster. It is written in what both speak; the one
function they spell differently, the draw, is defined for each. Every draw is an MD5 hash and every order is total, so
both give the same triples, whatever the number of threads or machines.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Literal

import duckdb

from common.files import file_written_whole
from training.corpus.sql import quoted, readable

Engine = Literal["duckdb", "spark"]

TRIPLE_COLUMNS = (
    "concept_id",  # of anchor and positive
    "anchor_language",
    "positive_language",
    "category",  # shared by anchor and negative
    "negative_id",  # concept of the hard negative in the anchor's language
    "positive_negative_id",  # concept of the hard negative in the positive's language, NULL where there is none
    "split",
)

# Which side is the anchor is drawn. A negative is drawn as uniformly as it can be without a join of a category with
# itself: first a category of the article that has another member in its language and split, then one of those members.
# A category over the limit is drawn less often: its draw, of which the least wins, grows with its size.
_TRIPLES = """
WITH member AS (
    SELECT language, split, category, concept_id, member_index, size
    FROM (
        SELECT language, split, category, concept_id,
               row_number() OVER (PARTITION BY language, split, category ORDER BY concept_id) - 1 AS member_index,
               count(*) OVER (PARTITION BY language, split, category) AS size
        FROM (
            SELECT DISTINCT language, split, concept_id, category
            FROM (SELECT language, split, concept_id, {each}(categories) AS category FROM article) AS listed
        ) AS distinct_member
    ) AS counted
    WHERE size > 1
),
pair AS (
    SELECT concept_id, split,
           CASE WHEN side = 0 THEN one_language ELSE other_language END AS anchor_language,
           CASE WHEN side = 0 THEN other_language ELSE one_language END AS positive_language
    FROM (
        SELECT one.concept_id, one.split, one.language AS one_language, other.language AS other_language,
               draw(concat_ws('|', 'side', one.concept_id, one.language, other.language)) % 2 AS side
        FROM article AS one
        JOIN article AS other
          ON one.concept_id = other.concept_id AND one.split = other.split AND one.language < other.language
    ) AS languages
),
side AS (
    SELECT concept_id, split, anchor_language, positive_language, anchor_language AS language FROM pair
    UNION ALL
    SELECT concept_id, split, anchor_language, positive_language, positive_language AS language FROM pair
),
drawn AS (
    SELECT concept_id, anchor_language, positive_language, language, split, category,
           (member_index + 1 + draw(concat_ws('|', 'member', concept_id, anchor_language, positive_language, language))
                        % (size - 1)) % size AS negative_index
    FROM (
        SELECT side.concept_id, side.anchor_language, side.positive_language, side.language, side.split,
               member.category, member.member_index, member.size,
               row_number() OVER (
                   PARTITION BY side.concept_id, side.anchor_language, side.positive_language, side.language
                   ORDER BY CAST(draw(concat_ws('|', 'category', side.concept_id, side.anchor_language,
                                                side.positive_language, side.language, member.category)) AS DOUBLE)
                            * greatest(1e0, CAST(member.size AS DOUBLE) / {category_limit}),
                            member.category
               ) AS category_rank
        FROM side
        JOIN member
          ON member.concept_id = side.concept_id AND member.split = side.split AND member.language = side.language
    ) AS candidate
    WHERE category_rank = 1
),
negative AS (
    SELECT drawn.concept_id, drawn.anchor_language, drawn.positive_language, drawn.language, drawn.category,
           member.concept_id AS negative_id
    FROM drawn
    JOIN member
      ON member.language = drawn.language AND member.split = drawn.split AND member.category = drawn.category
     AND member.member_index = drawn.negative_index
)
SELECT pair.concept_id, pair.anchor_language, pair.positive_language, hard.category, hard.negative_id,
       hard_positive.negative_id AS positive_negative_id, pair.split
FROM pair
JOIN negative AS hard
  ON hard.concept_id = pair.concept_id AND hard.anchor_language = pair.anchor_language
 AND hard.positive_language = pair.positive_language AND hard.language = pair.anchor_language
LEFT JOIN negative AS hard_positive
  ON hard_positive.concept_id = pair.concept_id AND hard_positive.anchor_language = pair.anchor_language
 AND hard_positive.positive_language = pair.positive_language
 AND hard_positive.language = pair.positive_language
ORDER BY pair.split, pair.concept_id, pair.anchor_language, pair.positive_language
"""


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
    if engine == "spark":
        _draw_with_spark(articles, target.with_name(target.name + ".spark"), category_limit, seed)
        source = readable(target.with_name(target.name + ".spark"), "*.parquet")
        query = f"SELECT * FROM read_parquet({source}) ORDER BY split, concept_id, anchor_language, positive_language"
    else:
        define_draw(connection, seed)
        connection.execute(
            f"""
            CREATE OR REPLACE VIEW article AS
            SELECT concept_id, language, split, categories FROM read_parquet([{", ".join(map(readable, articles))}])
            """
        )
        query = _TRIPLES.format(each="unnest", category_limit=category_limit)
    with file_written_whole(target) as partial:
        connection.execute(f"COPY ({query}) TO {quoted(partial)} (FORMAT parquet)")


def define_draw(connection: duckdb.DuckDBPyConnection, seed: int) -> None:
    """Gives DuckDB `draw(key)`, an integer in [0, 2^60) that the seed and the key decide."""
    connection.execute(
        f"CREATE OR REPLACE MACRO draw(key) AS CAST('0x' || substr(md5('{seed:d}|' || key), 1, 15) AS BIGINT)"
    )


def _draw_with_spark(articles: list[Path], target: Path, category_limit: int, seed: int) -> None:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError("engine: spark needs PySpark and Java 17: pip install 'hmde[spark]'") from error
    spark = SparkSession.builder.appName("hmde-corpus").getOrCreate()
    try:
        # Spark takes these signs in a path that it reads for a pattern.
        paths = [re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path)) for path in articles]
        spark.read.parquet(*paths).createOrReplaceTempView("article")
        spark.sql(
            f"""
            CREATE OR REPLACE TEMPORARY FUNCTION draw(key STRING) RETURNS BIGINT
            RETURN CAST(conv(substr(md5(CAST(concat('{seed:d}|', key) AS BINARY)), 1, 15), 16, 10) AS BIGINT)
            """
        )
        spark.sql(_TRIPLES.format(each="explode", category_limit=category_limit)).write.mode("overwrite").parquet(
            str(target)
        )
    finally:
        spark.stop()


def sample_triples(
    connection: duckdb.DuckDBPyConnection, triples: Path, target: Path, num_triples: int, exponent: float, seed: int
) -> None:
    """Writes `num_triples` of the triples, drawn so that a pair of languages with n of them has p ∝ n^exponent."""
    pair = "least(anchor_language, positive_language) || '-' || greatest(anchor_language, positive_language)"
    sizes = dict(
        connection.execute(f"SELECT {pair}, count(*) FROM {readable(triples)} GROUP BY 1 ORDER BY 1").fetchall()
    )
    quota = quotas(sizes, num_triples, exponent)
    define_draw(connection, seed)
    with file_written_whole(target) as partial:
        connection.execute(
            f"""
            COPY (
                SELECT {", ".join(TRIPLE_COLUMNS)}
                FROM (
                    SELECT *, {pair} AS pair,
                           row_number() OVER (
                               PARTITION BY {pair}
                               ORDER BY draw(concat_ws('|', 'sample', concept_id, {pair})), concept_id
                           ) AS draw_rank
                    FROM {readable(triples)}
                ) AS ranked
                JOIN (SELECT unnest(?) AS pair, unnest(?) AS quota) AS allowed USING (pair)
                WHERE draw_rank <= quota
                ORDER BY split, concept_id, anchor_language, positive_language
            ) TO {quoted(partial)} (FORMAT parquet)
            """,
            [list(quota), list(quota.values())],
        )


def quotas(sizes: dict[str, int], total: int, exponent: float) -> dict[str, int]:
    """How many of each kind to draw, so that kind i has a share ∝ sizes[i]^exponent and never more than there are.

    What a kind is short of goes to the others in proportion. 1.0 keeps the shares (the paper), 0.7 is InfoXLM's.

    >>> quotas({"de-en": 900, "fi-hu": 100}, 100, exponent=1.0)
    {'de-en': 90, 'fi-hu': 10}
    >>> quotas({"de-en": 900, "fi-hu": 100}, 500, exponent=0.0)
    {'de-en': 400, 'fi-hu': 100}
    """
    total = min(total, sum(sizes.values()))
    shares: dict[str, float] = {}
    open_kinds = dict(sizes)
    while open_kinds:
        left = total - sum(shares.values())
        weight = sum(size**exponent for size in open_kinds.values())
        parts = {kind: left * size**exponent / weight for kind, size in open_kinds.items()}
        full = [kind for kind, part in parts.items() if part >= sizes[kind]]
        shares |= {kind: float(sizes[kind]) for kind in full} if full else parts
        open_kinds = {kind: size for kind, size in open_kinds.items() if full and kind not in full}
    quota = {kind: min(math.floor(shares[kind] + 1e-9), sizes[kind]) for kind in sizes}
    rounded_down = sorted((kind for kind in sizes if quota[kind] < sizes[kind]), key=lambda k: quota[k] - shares[k])
    for kind in rounded_down[: total - sum(quota.values())]:
        quota[kind] += 1
    return quota
