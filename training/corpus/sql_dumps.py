"""MediaWiki's SQL dumps as Parquet. Knows the format of a dump, not the meaning of its tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet

from common.files import file_written_whole
from common.records import unpacked

ROWS_AT_ONCE = 65_536
COLUMN = re.compile(rb"^  `(\w+)` (\w+)")
INSERT = re.compile(rb"INSERT INTO `\w+` (?:\([^)]*\) )?VALUES\s*|(?=\()")  # before rows, or a row by itself
VALUE = rb"NULL|[-+.\deE]+|'[^'\\]*(?:\\.[^'\\]*)*'"  # in a string, a backslash escapes
ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
MEANINGS = {b"0": b"\0", b"n": b"\n", b"r": b"\r", b"Z": b"\x1a"}


def dump_to_parquet(path: Path, target: Path, columns: Iterable[str], keep: pc.Expression | None = None) -> int:
    """Writes the rows for which `keep` is true, of the columns those that the dump has. Strings are UTF-8; invalid
    bytes become U+FFFD. Memory is bounded by the longest line, which mysqldump limits to some megabytes.

    Args:
        path: `<wiki>-<date>-<table>.sql.gz`.

    Returns:
        The number of rows of the dump.

    Raises:
        ValueError: the file is no such dump, is truncated or damaged.
    """
    count = 0
    with unpacked(path) as file, file_written_whole(target) as partial:
        types = column_types(file, path)
        wanted = [name in columns for name in types]
        values = [rb"(%s)" % VALUE if is_wanted else rb"(?:%s)" % VALUE for is_wanted in wanted]
        rows = read_rows(file, re.compile(rb"\(" + b",".join(values) + rb"\)[,;]\s*", re.DOTALL), path)
        schema = pa.schema([field for field, is_wanted in zip(types.items(), wanted) if is_wanted])
        with parquet.ParquetWriter(partial, schema, compression="zstd") as writer:
            while batch := list(islice(rows, ROWS_AT_ONCE)):
                arrays = [converted(column, kind) for column, kind in zip(zip(*batch), schema.types)]
                table = pa.table(arrays, schema)
                writer.write_table(table if keep is None else table.filter(keep))
                count += len(batch)
    return count


def column_types(file: Iterable[bytes], path: Path) -> dict[str, pa.DataType]:
    """The columns of the dump's table in their order; reads the file to the end of its CREATE TABLE statement."""
    types = {}
    for line in file:
        if column := COLUMN.match(line):
            kind = column[2].lower()
            number = pa.int64() if kind.endswith(b"int") else pa.float64() if kind in (b"float", b"double") else None
            types[column[1].decode()] = number or pa.string()
        elif types and line.startswith(b")"):
            return types
    raise ValueError(f"{path} has no CREATE TABLE statement; a MediaWiki SQL dump is needed")


def read_rows(file: Iterable[bytes], row: re.Pattern[bytes], path: Path) -> Iterator[tuple[bytes, ...]]:
    """The wanted values of each row, as they are written. A line holds one row, or an INSERT of many."""
    last = b""
    for line in file:
        last = line if line.strip() else last
        begin = INSERT.match(line)
        position = begin.end() if begin else len(line)
        while found := row.match(line, position):
            yield found.groups()
            position = found.end()
        if position < len(line):
            raise ValueError(f"{path} is damaged, or no dump of this table; delete it and download it again")
    if not last.startswith(b"-- Dump completed"):
        raise ValueError(f"{path} is truncated: it does not end with `-- Dump completed`; download it again")


def converted(column: tuple[bytes, ...], kind: pa.DataType) -> pa.Array:
    if kind != pa.string():
        return pa.array([None if value == b"NULL" else value.decode() for value in column], pa.string()).cast(kind)
    return pa.array([None if value == b"NULL" else text_of(value[1:-1]) for value in column], kind)


def text_of(string: bytes) -> str:
    if b"\\" in string:
        string = ESCAPED.sub(lambda match: MEANINGS.get(match[1], match[1]), string)
    return string.decode(errors="replace")
