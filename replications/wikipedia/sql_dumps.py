"""A streaming parser of MediaWiki's SQL dumps. It knows the format of a dump, not the meaning of its tables.

The parser turns SQL into CSV in place and leaves the rest to Arrow's CSV reader. mysqldump escapes NUL, line feed,
carriage return and 0x1A inside strings, so these bytes are free: a raw line feed always ends a line of the dump, and
0x1A can mark an escaping backslash. Every quote inside a string is doubled, and `),(` becomes a line feed, so that each
row is a line. The wanted columns then get back the bytes that were replaced. One thread decompresses, others parse.
"""

from __future__ import annotations

import gzip
import os
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as parquet
from isal import igzip
from isal.igzip_lib import IsalError

from hmde.common.files import file_written_whole

_BLOCK = 1 << 18  # bytes of SQL that are parsed at once; a longer line is read whole
_CREATE = re.compile(rb"CREATE TABLE `\w+` \((.*?)\n\)[^\n]*;\n", re.DOTALL)
_COLUMN = re.compile(rb"^\s*`(\w+)` (\w+)", re.MULTILINE)
_INSERT = re.compile(rb"INSERT INTO `\w+` (?:\([^)]*\) )?VALUES\s*\(?")
_LINE_END, _ESCAPE = b"\n\x1a"  # the bytes that replace `),(` and an escaping `\`
_ESCAPED = np.arange(256, dtype=np.uint8)  # the meaning of a byte after an escape
_ESCAPED[list(b"0nrZ")] = list(b"\0\n\r\x1a")


def column_types(path: Path) -> dict[str, pa.DataType]:
    """The columns of a dump's table in their order, from its CREATE TABLE statement.

    Raises:
        ValueError: the file is no SQL dump of a table, or is truncated.
    """
    with igzip.open(path) as stream:
        return _header(stream, path)[0]


def read_dump(path: Path, columns: list[str]) -> Iterator[pa.Table]:
    """The rows of a dump in batches, each of about a megabyte of SQL.

    Strings are UTF-8; invalid bytes become U+FFFD. Memory is bounded by the longest line, which mysqldump limits to
    some megabytes.

    Args:
        path: `<wiki>-<date>-<table>.sql.gz`.
        columns: names of the wanted columns, which the dump has. The others are not converted.

    Raises:
        ValueError: the file is no such dump, is truncated or damaged.
    """
    workers = os.cpu_count() or 1
    parsed: deque[Future[pa.Table]] = deque()
    with igzip.open(path) as stream, ThreadPoolExecutor(workers) as pool:
        types, rest = _header(stream, path)
        for block in _lines(stream, rest, path):
            parsed.append(pool.submit(_rows, block, types, columns, path))
            if len(parsed) > 2 * workers:  # enough for all workers while the next table is still parsed
                yield parsed.popleft().result()
        for table in parsed:
            yield table.result()


def dump_to_parquet(path: Path, target: Path, columns: list[str], keep: pc.Expression | None = None) -> int:
    """Writes the rows for which `keep` is true, of the columns those that the dump has. The file is there whole or not
    at all.

    Returns:
        The number of rows of the dump.
    """
    rows = 0
    types = {name: kind for name, kind in column_types(path).items() if name in columns}
    schema = pa.schema([(name, pa.string() if kind == pa.binary() else kind) for name, kind in types.items()])
    with file_written_whole(target) as partial, parquet.ParquetWriter(partial, schema, compression="zstd") as writer:
        for table in read_dump(path, list(types)):
            writer.write_table(table if keep is None else table.filter(keep))
            rows += len(table)
    return rows


def _lines(stream: BinaryIO, rest: bytes, path: Path) -> Iterator[bytearray]:
    """Whole lines, as many as a block holds."""
    unread, tail = bytearray(), b""
    for block in chain([rest], iter(lambda: _read(stream, path), b"")):
        end = block.rfind(b"\n") + 1
        unread += memoryview(block)[:end]
        if end:
            tail = (tail + unread[-100:])[-100:]
            yield unread
            unread = bytearray()
        unread += memoryview(block)[end:]
    if not (tail + unread).rstrip().rpartition(b"\n")[2].startswith(b"-- Dump completed"):
        raise ValueError(f"{path} is truncated: it does not end with `-- Dump completed`; download it again")


def _read(stream: BinaryIO, path: Path) -> bytes:
    try:
        return stream.read(_BLOCK)
    except (EOFError, gzip.BadGzipFile, IsalError) as error:  # type: ignore[misc]  # isal's stub has no class there
        raise ValueError(f"{path} is truncated or damaged: {error}; delete it and download it again") from None


def _header(stream: BinaryIO, path: Path) -> tuple[dict[str, pa.DataType], bytes]:
    """Column types, and the bytes that were read after the CREATE TABLE statement."""
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


def _rows(block: bytearray, types: dict[str, pa.DataType], columns: list[str], path: Path) -> pa.Table:
    """The rows of some lines, each with one row or an INSERT of many. Writes over the block."""
    signs = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(signs == _LINE_END)
    begins = np.concatenate([[0], ends[:-1] + 1])
    # Everything that is no row becomes empty lines, which the CSV reader skips.
    others = signs[begins] != ord("(")
    for begin, end in zip(begins[others].tolist(), ends[others].tolist()):
        insert = _INSERT.match(block, begin, end)
        signs[begin : insert.end() if insert else end] = _LINE_END
    for outside in (begins, ends - 2, ends - 1):  # `(` and `);` or `),`
        signs[outside.clip(0)] = _LINE_END
    backslashes = np.flatnonzero(signs == ord("\\"))
    index = np.arange(len(backslashes))
    first_of_run = np.maximum.accumulate(np.where(np.diff(backslashes, prepend=-2) == 1, 0, index))
    escapes = backslashes[(index - first_of_run) % 2 == 0]  # of several in a row every second is itself escaped
    signs[escapes] = np.where(signs[escapes + 1] == ord("'"), ord("'"), _ESCAPE)
    offsets = pa.py_buffer(np.array([0, len(block)], np.int32))
    lines = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(block)])
    rows = pc.replace_substring(lines, b"),(", b"\n").buffers()[2]
    try:
        table = csv.read_csv(
            pa.BufferReader(rows),
            csv.ReadOptions(use_threads=False, block_size=len(rows) + 1, column_names=list(types)),
            csv.ParseOptions(quote_char="'", double_quote=True, newlines_in_values=True),
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
    return pa.table({name: _text(table[name]) if types[name] == pa.binary() else table[name] for name in columns})


def _text(column: pa.ChunkedArray) -> pa.Array:
    strings = column.combine_chunks()
    if (_bytes(strings) == _LINE_END).any():
        strings = pc.replace_substring(strings, b"\n", b"),(")
    signs = _bytes(strings)
    escapes = np.flatnonzero(signs == _ESCAPE)
    if len(escapes):
        signs = signs.copy()
        signs[escapes + 1] = _ESCAPED[signs[escapes + 1]]
        valid, offsets, _ = strings.buffers()
        begins = np.frombuffer(offsets, np.int32)
        begins = begins - np.searchsorted(escapes, begins).astype(np.int32)
        buffers = [valid, pa.py_buffer(begins), pa.py_buffer(np.delete(signs, escapes))]
        strings = pa.Array.from_buffers(pa.binary(), len(strings), buffers)
    try:
        return strings.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8
        return pa.array([value if value is None else value.decode(errors="replace") for value in strings.to_pylist()])


def _bytes(strings: pa.Array) -> np.ndarray:
    return np.frombuffer(strings.buffers()[2] or b"", np.uint8)
