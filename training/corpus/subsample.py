"""A part of the triples, in which rare pairs of languages may have a larger share."""

from __future__ import annotations

from pathlib import Path

import duckdb

from training.corpus.database import define_draw, read_parquet, write_parquet
from training.corpus.hard_negatives import TRIPLE_COLUMNS

LANGUAGE_PAIR = "least(anchor_language, positive_language) || '-' || greatest(anchor_language, positive_language)"


def sample_triples(
    connection: duckdb.DuckDBPyConnection, triples: Path, target: Path, num_triples: int, exponent: float, seed: int
) -> None:
    """Writes `num_triples` of the triples, drawn so that a pair of languages with n of them has a share ∝ n^exponent.
    1.0 keeps the shares (the paper), 0.7 is InfoXLM's. What a pair is short of goes to the others in proportion.

    The pairs take turns, each n^exponent times as often as a pair with one triple, until all have had `num_triples`.
    """
    define_draw(connection, seed)
    write_parquet(
        connection,
        f"""
        WITH drawn AS (
            SELECT *, {LANGUAGE_PAIR} AS pair, count(*) OVER (PARTITION BY pair) AS size,
                   row_number() OVER (
                       PARTITION BY pair ORDER BY draw(concat_ws('|', 'sample', concept_id, pair)), concept_id
                   ) AS draw_rank
            FROM {read_parquet(triples)}
        ),
        sample AS (FROM drawn ORDER BY (draw_rank - 0.5) / pow(size, ?), pair LIMIT ?)
        SELECT {", ".join(TRIPLE_COLUMNS)} FROM sample
        ORDER BY split, concept_id, anchor_language, positive_language
        """,
        target,
        [exponent, num_triples],
    )
