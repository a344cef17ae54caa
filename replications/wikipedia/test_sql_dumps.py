"""The parser of SQL dumps, against dumps as mysqldump writes them."""

from __future__ import annotations

import gzip
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replications.wikipedia.sql_dumps import column_types, dump_to_parquet, read_dump
from tests.wikipedias import CREATE, write_dump


@given(
    rows=st.lists(
        st.tuples(
            st.integers(-(2**40), 2**40),
            st.one_of(
                st.none(),
                st.binary(max_size=12),
                st.text(alphabet="'\\\"),(;\n\rN0Zr\0\x1aéП水", max_size=12).map(str.encode),
                st.sampled_from([b"NULL", b"", b"'),(1,'", b";\nINSERT INTO `page` VALUES (", b"\\\\'", b"),("]),
            ),
            st.one_of(st.none(), st.floats(-(10.0**9), 10.0**9)),
        ),
        min_size=1,
        max_size=9,
    ),
    rows_per_insert=st.integers(1, 9),
    between=st.sampled_from([b",", b",\n"]),
    block=st.sampled_from([3, 50, 1 << 20]),
)
def test_every_row_that_mysqldump_can_write_is_read_back(tmp_path_factory, rows, rows_per_insert, between, block):
    path = tmp_path_factory.mktemp("dumps") / "xxwiki-latest-page.sql.gz"
    create = "`a` int(8),\n  `b` varbinary(255),\n  `c` float DEFAULT NULL"
    write_dump(path, create, rows, rows_per_insert, between)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("replications.wikipedia.sql_dumps._BLOCK", block)
        table = pa.concat_tables(read_dump(path, ["a", "b", "c"]))
    expected = [(a, None if b is None else b.decode(errors="replace"), c) for a, b, c in rows]
    assert list(zip(*(table[name].to_pylist() for name in "abc"))) == expected


def test_an_insert_of_many_megabytes_is_read_in_bounded_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("replications.wikipedia.sql_dumps._BLOCK", 1 << 12)  # blocks end anywhere inside rows
    rows = [(index, f"Title_{index}_" + "x" * 50) for index in range(2000)]
    path = tmp_path / "xxwiki-latest-page.sql.gz"
    write_dump(path, "`a` int(8),\n  `b` varbinary(255)", rows, rows_per_insert=300)
    batches = list(read_dump(path, ["a", "b"]))
    assert max(map(len, batches)) == 300
    assert [row for batch in batches for row in zip(*(batch[name].to_pylist() for name in "ab"))] == rows


def test_columns_come_from_the_dump_and_only_rows_that_are_kept_are_written(tmp_path):
    path = write_dump(tmp_path / "xxwiki-latest-page.sql.gz", CREATE["page"], [(1, 0, "A", 0, 0.5, None)] * 4)
    assert list(column_types(path)) == re.findall(r"`(\w+)`", CREATE["page"])
    keep = pc.field("page_id") > 1
    assert dump_to_parquet(path, tmp_path / "page.parquet", ["page_id"], keep) == 4
    assert parquet.read_metadata(tmp_path / "page.parquet").num_rows == 0
    assert parquet.read_schema(tmp_path / "page.parquet").names == ["page_id"]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda raw: raw[: len(raw) // 2], "truncated or damaged"),
        (lambda raw: gzip.compress(gzip.decompress(raw).split(b"UNLOCK")[0]), "does not end with"),
        (lambda raw: gzip.compress(b"<html>not found</html>"), "no CREATE TABLE"),
        (lambda raw: gzip.decompress(raw), "truncated or damaged"),
        (lambda raw: raw + gzip.compress(b"INSERT INTO"), "does not end with `-- Dump completed`"),
        (lambda raw: gzip.compress(gzip.decompress(raw).replace(b"NULL)", b"NULL,1)", 1)), "is damaged"),
    ],
)
def test_a_dump_that_is_not_whole_is_named(tmp_path, break_it, message):
    path = write_dump(tmp_path / "xxwiki-latest-page.sql.gz", CREATE["page"], [(1, 0, "A", 0, 0.5, None)] * 9)
    path.write_bytes(break_it(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"page\.sql\.gz.*{message}"):
        dump_to_parquet(path, tmp_path / "page.parquet", ["page_id", "page_title"])
    assert not (tmp_path / "page.parquet").exists()
