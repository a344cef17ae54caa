"""Lines, JSON and Parquet: what is read, and what is said of what cannot be read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from hmde.common.records import json_rows, lines, parquet_rows, rows


def test_a_line_ends_with_a_line_feed_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("\ufeffone\r\ntwo\u2028still two\x85\n\nfour".encode())
    assert [*lines(path)] == [(1, "one"), (2, "two\u2028still two\x85"), (3, ""), (4, "four")]


def test_json_lines_are_read_packed_or_not_and_blank_lines_are_no_rows(tmp_path: Path) -> None:
    content = b'{"a": 1}\n\n[2]\n'
    (tmp_path / "plain.jsonl").write_bytes(content)
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(content))
    for name in ("plain.jsonl", "packed.jsonl.gz"):
        assert [*json_rows(tmp_path / name)] == [(1, {"a": 1}), (3, [2])]


def test_rows_of_parquet_have_the_columns_asked_for_as_far_as_there_are_any(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    parquet.write_table(pa.table({"a": [*range(3000)], "b": ["x"] * 3000}), path)
    read = [*rows(path, ["a", "c"])]
    assert len(read) == 3000
    assert read[2999] == (3000, {"a": 2999})
    assert next(parquet_rows(path)) == (1, {"a": 0, "b": "x"})


def test_a_row_of_parquet_without_any_column_asked_for_is_a_row(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": ["x"] * 1025}), tmp_path / "table.parquet")
    assert [*rows(tmp_path / "table.parquet", ["text"])] == [(number, {}) for number in range(1, 1026)]


def test_a_date_that_python_does_not_know_is_named_with_its_row(tmp_path: Path) -> None:
    days = pa.array([0, 1, 2**30, 3], pa.date32())
    parquet.write_table(pa.table({"day": days, "text": ["x"] * 4}), tmp_path / "table.parquet")
    assert len([*rows(tmp_path / "table.parquet", ["text"])]) == 4
    with pytest.raises(ValueError, match=r"table\.parquet, row 3: has a value that Python does not know .*; correct"):
        [*rows(tmp_path / "table.parquet")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text", b"one\ntwo \xff\n", r"text, line 2: is not UTF-8 \(byte 4 of it is 0xff\); save the file as UTF-8"),
        ("text.gz", b"no gzip", r"text\.gz is no whole gzip file"),
        ("text.gz", gzip.compress(b"line\n" * 1000, mtime=0)[:-12], r"text\.gz is no whole gzip file"),
        ("rows.jsonl", b'{}\n{"a": \n', r"rows\.jsonl, line 2: is no JSON .*; write one JSON value a line"),
        ("rows.jsonl", b"[" * 100_000, r"rows\.jsonl, line 1: is no JSON"),
        ("rows.parquet", b"PAR1", r"rows\.parquet is no Parquet file, or not a whole one"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    read = lines if name.startswith("text") else rows
    with pytest.raises(ValueError, match=message):
        [*read(tmp_path / name)]


def test_a_file_that_there_is_not_is_named(tmp_path: Path) -> None:
    for name in ("text", "rows.jsonl", "rows.parquet"):
        with pytest.raises(ValueError, match=name):
            [*rows(tmp_path / name)]
