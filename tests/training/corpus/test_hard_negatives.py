"""Hard negatives by category."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet

from tests.wikipedias import rows_of
from training.corpus.hard_negatives import draw_triples


def test_a_category_over_the_limit_is_drawn_less_often(tmp_path):
    rows = [
        {"concept_id": f"Q{n}", "language": lang, "split": "train", "categories": ["all", f"small {n // 5}"]}
        for n in range(1000)
        for lang in ("de", "en")
    ]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "articles.parquet")
    shares = []
    for limit in (1000, 100):
        with duckdb.connect() as connection:
            draw_triples(
                connection, [tmp_path / "articles.parquet"], tmp_path / "t.parquet", category_limit=limit, seed=1
            )
        shares.append(sum(row["category"] == "all" for row in rows_of(f"{tmp_path}/t.parquet")) / 1000)
    assert 0.45 < shares[0] < 0.55
    assert 0.02 < shares[1] < 0.09
