"""The parser of SQL dumps, against dumps as mysqldump writes them."""

from __future__ import annotations

import gzip

import pyarrow.compute as pc
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.corpus.wikipedias import CREATE, write_dump
from training.corpus import sql_dumps
from training.corpus.sql_dumps import dump_to_parquet


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
    rows_at_once=st.sampled_from([1, 3, 1000]),
)
def test_every_row_that_mysqldump_can_write_is_read_back(
    tmp_path_factory, rows, rows_per_insert, between, rows_at_once
):
    path = tmp_path_factory.mktemp("dumps") / "xxwiki-latest-page.sql.gz"
    create = "`a` int(8),\n  `b` varbinary(255),\n  `c` float DEFAULT NULL"
    write_dump(path, create, rows, rows_per_insert, between)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql_dumps, "ROWS_AT_ONCE", rows_at_once)
        assert dump_to_parquet(path, path.with_name("page.parquet"), ["a", "b", "c"]) == len(rows)
    table = parquet.read_table(path.with_name("page.parquet"))
    expected = [(a, None if b is None else b.decode(errors="replace"), c) for a, b, c in rows]
    assert list(zip(*(table[name].to_pylist() for name in "abc"))) == expected


def test_only_the_columns_and_rows_that_are_wanted_are_written(tmp_path):
    rows = [(number, 0, "A", 0, 0.5, None) for number in (1, 2, 1)]
    path = write_dump(tmp_path / "xxwiki-latest-page.sql.gz", CREATE["page"], rows)
    assert dump_to_parquet(path, tmp_path / "page.parquet", ["page_id", "unknown"], pc.field("page_id") > 1) == 3
    assert parquet.read_table(tmp_path / "page.parquet").to_pylist() == [{"page_id": 2}]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda raw: raw[: len(raw) // 2], "is no whole gzip file"),
        (lambda raw: gzip.compress(gzip.decompress(raw).split(b"UNLOCK")[0]), "does not end with"),
        (lambda raw: gzip.compress(b"<html>not found</html>"), "no CREATE TABLE"),
        (lambda raw: gzip.decompress(raw), "is no whole gzip file"),
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
