"""Reads the tables that MediaWiki's SQL dumps hold, as a stream. Knows the form of a dump, not what its tables mean.

mysqldump escapes NUL, line feed, carriage return and 0x1A inside strings, so none of these bytes stands raw in one. A
raw line feed hence ends a line of the dump and nothing else, and the others are free to stand for escaped characters:
with a few `bytes.replace` every remaining quote is a real one and every row a line, for Arrow's CSV reader to parse.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from training.folders import file_written_whole

_BLOCK = 1 << 24  # bytes of SQL that are parsed at once; a longer INSERT is read whole
_CREATE = re.compile(rb"CREATE TABLE `\w+` \((.*?)\n\)[^\n]*;\n", re.DOTALL)
_COLUMN = re.compile(rb"^\s*`(\w+)` (\w+)", re.MULTILINE)
_INSERT = re.compile(rb"^INSERT INTO `\w+` (?:\([^)]*\) )?VALUES\s*\(", re.MULTILINE)
_ESCAPE = re.compile(rb"\\(.)|\x1a", re.DOTALL)
_ESCAPED = {b"0": b"\0", b"n": b"\n", b"r": b"\r", b"Z": b"\x1a"}
_ROW_END, _BACKSLASH, _QUOTE = b"\n", b"\x1a", b"\0"  # what stands for `),(`, `\\` and `\'` while a block is parsed


def column_types(path: str | Path) -> dict[str, pa.DataType]:
    """The columns of a dump's table in their order, from its CREATE TABLE statement.

    Raises:
        ValueError: the file is no SQL dump of a table, or is truncated.
    """
    with gzip.open(path) as stream:
        return _header(cast(BinaryIO, stream), Path(path))[0]


def read_dump(path: str | Path, columns: list[str]) -> Iterator[pa.Table]:
    """The rows of a dump in batches of some megabytes, as many as its INSERT statements hold.

    Strings are UTF-8; bytes that are none become U+FFFD. Memory is bounded by the longest INSERT statement, which
    mysqldump keeps to some megabytes.

    Args:
        path: `<wiki>-<date>-<table>.sql.gz`.
        columns: those wanted, by name. The others are not converted.

    Raises:
        ValueError: the file is no such dump, lacks a column, is truncated or damaged.
    """
    path = Path(path)
    with gzip.open(path) as stream:
        types, rest = _header(cast(BinaryIO, stream), path)
        if missing := [name for name in columns if name not in types]:
            raise ValueError(f"{path} has no column {', '.join(missing)}; its columns are {', '.join(types)}")
        for block in chain([b""], iter(lambda: _read(cast(BinaryIO, stream), path), b"")):
            rest += block
            end = rest.rfind(b";\n") + 2
            if end > 1:
                yield from _rows(rest[:end], types, columns, path)
                rest = rest[end:]
    if b"-- Dump completed" not in rest:
        raise ValueError(f"{path} is truncated: it does not end with `-- Dump completed`; remove it and bring it again")


def dump_to_parquet(
    path: str | Path, target: str | Path, columns: list[str], keep: pc.Expression | None = None
) -> dict[str, int]:
    """Writes the rows of a dump that `keep` holds for; the file is there whole or not at all.

    Returns:
        `rows`, how many the dump has, and `kept`.
    """
    counts = {"rows": 0, "kept": 0}
    types = {name: kind for name, kind in column_types(path).items() if name in columns}
    schema = pa.schema([(name, pa.string() if kind == pa.binary() else kind) for name, kind in types.items()])
    with file_written_whole(target) as partial, parquet.ParquetWriter(partial, schema, compression="zstd") as writer:
        for table in read_dump(path, list(types)):
            kept = table if keep is None else table.filter(keep)
            writer.write_table(kept)
            counts["rows"] += len(table)
            counts["kept"] += len(kept)
    return counts


def _read(stream: BinaryIO, path: Path) -> bytes:
    try:
        return stream.read(_BLOCK)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is truncated or damaged: {error}; remove it and bring it again") from None


def _header(stream: BinaryIO, path: Path) -> tuple[dict[str, pa.DataType], bytes]:
    """Column types, and what was read behind the CREATE TABLE statement."""
    head = b""
    while not (create := _CREATE.search(head)):
        block = _read(stream, path)
        if not block:
            raise ValueError(f"{path} has no CREATE TABLE statement; a MediaWiki SQL dump is needed")
        head += block
    columns = _COLUMN.findall(create[1])
    return {name.decode(): _type(kind.lower()) for name, kind in columns}, head[create.end() :]


def _type(kind: bytes) -> pa.DataType:
    if kind.endswith(b"int"):
        return pa.int64()
    return pa.float64() if kind in (b"float", b"double") else pa.binary()


def _rows(block: bytes, types: dict[str, pa.DataType], columns: list[str], path: Path) -> Iterator[pa.Table]:
    values = []
    for statement in block.split(b";\n"):
        if insert := _INSERT.search(statement):
            values.append(statement[insert.end() :].removesuffix(b")"))
    if not values:
        return
    lines = b"\n".join(value.replace(b"),\n(", b"),(") for value in values)
    lines = lines.replace(b"\\\\", _BACKSLASH).replace(b"\\'", _QUOTE).replace(b"),(", _ROW_END)
    try:
        table = csv.read_csv(
            pa.BufferReader(lines),
            csv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=list(types)),
            csv.ParseOptions(quote_char="'", double_quote=False, newlines_in_values=True),
            csv.ConvertOptions(
                column_types=types,
                include_columns=columns,
                null_values=["NULL"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is damaged, or no dump of this table: {error}") from None
    yield pa.table({name: _unescaped(table[name]) if types[name] == pa.binary() else table[name] for name in columns})


def _unescaped(strings: pa.ChunkedArray) -> pa.ChunkedArray:
    for sign, meaning in ((_QUOTE, b"'"), (_ROW_END, b"),("), (b'\\"', b'"')):
        strings = pc.replace_substring(strings, sign, meaning)
    if pc.any(pc.match_substring(strings, b"\\")).as_py():
        strings = pa.chunked_array([[_unescape(value) for value in strings.to_pylist()]], pa.binary())
    else:
        strings = pc.replace_substring(strings, _BACKSLASH, b"\\")
    try:
        return strings.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8
        decoded = [value if value is None else value.decode(errors="replace") for value in strings.to_pylist()]
        return pa.chunked_array([decoded], pa.string())


def _unescape(value: bytes | None) -> bytes | None:
    return value and _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]) if match[1] else b"\\", value)
