"""Hard negatives by category, with DuckDB and with Spark."""

from __future__ import annotations

import shutil

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tests.training.corpus.wikipedias import arguments, bytes_of, rows_of, write_wikis
from training.corpus import main
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


SPARK = (
    "--master local[1] --conf spark.sql.shuffle.partitions=1 --conf spark.ui.enabled=false "
    "--conf spark.sql.codegen.wholeStage=false --conf spark.sql.codegen.factoryMode=NO_CODEGEN "
    "--conf spark.sql.adaptive.enabled=false --conf spark.sql.autoBroadcastJoinThreshold=-1 "
    "--conf spark.driver.memory=1g pyspark-shell"
)


def test_spark_that_is_not_installed_is_named_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setattr("training.corpus.build.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"engine is spark, which needs PySpark .* pip install 'hmde\[spark\]'"):
        main(arguments(tmp_path, "corpus", "--engine", "spark"))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not shutil.which("java"), reason="Spark needs Java")
def test_spark_gives_the_same_triples(monkeypatch, tmp_path):
    pytest.importorskip("pyspark", reason="pip install 'hmde[spark]'")
    monkeypatch.chdir(tmp_path)  # where Spark makes a folder of its own
    for name, value in {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": SPARK}.items():
        monkeypatch.setenv(name, value)
    world = write_wikis(tmp_path)
    main(arguments(world, "duckdb", "--category_limit", "2"))
    main(arguments(world, "spark{1}[2]", "--category_limit", "2", "--engine", "spark"))
    assert bytes_of(world / "duckdb") == bytes_of(world / "spark{1}[2]")
