"""A part of the triples, in which rare pairs of languages may have a larger share."""

from __future__ import annotations

import math
from pathlib import Path

import duckdb

from training.corpus.database import count_by, define_draw, read_parquet, write_parquet
from training.corpus.hard_negatives import TRIPLE_COLUMNS

LANGUAGE_PAIR = "least(anchor_language, positive_language) || '-' || greatest(anchor_language, positive_language)"


def sample_triples(
    connection: duckdb.DuckDBPyConnection, triples: Path, target: Path, num_triples: int, exponent: float, seed: int
) -> None:
    """Writes `num_triples` of the triples, drawn so that a pair of languages with n of them has p ∝ n^exponent."""
    quota = quotas(count_by(connection, read_parquet(triples), LANGUAGE_PAIR), num_triples, exponent)
    define_draw(connection, seed)
    write_parquet(
        connection,
        f"""
        SELECT {", ".join(TRIPLE_COLUMNS)}
        FROM (
            SELECT *, {LANGUAGE_PAIR} AS pair,
                   row_number() OVER (
                       PARTITION BY {LANGUAGE_PAIR}
                       ORDER BY draw(concat_ws('|', 'sample', concept_id, {LANGUAGE_PAIR})), concept_id
                   ) AS draw_rank
            FROM {read_parquet(triples)}
        ) AS ranked
        JOIN (SELECT unnest(?) AS pair, unnest(?) AS quota) AS allowed USING (pair)
        WHERE draw_rank <= quota
        ORDER BY split, concept_id, anchor_language, positive_language
        """,
        target,
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
