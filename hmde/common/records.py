"""Readers of text files line by line and of tables row by row: UTF-8, gzip, JSON lines and Parquet.

An error names the file, the line or row, the rule that it breaks, and the way out. Files are streamed.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from hmde.common.progress import progress_bar

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile

# Most that is read at once of a Parquet file.
ROWS_AT_ONCE = 1024
BYTES_AT_ONCE = 2**26
PARQUET = ".parquet"


def where(path: Path, *numbers: int) -> str:
    """A file and its line or row numbers, from 1, as errors name them.

    >>> where(Path("en.jsonl"), 7)
    'en.jsonl, line 7'
    >>> where(Path("en.parquet"), 7, 9)
    'en.parquet, rows 7 and 9'
    """
    kind = "row" if path.suffix.lower() == PARQUET else "line"
    return f"{path}, {kind}{'s' * (len(numbers) > 1)} {' and '.join(map(str, numbers))}"


def malformed(path: Path, number: int, rule: str) -> ValueError:
    """The error of a line or row that breaks a rule."""
    return ValueError(f"{where(path, number)}: {rule}")


@contextmanager
def unpacked(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file. A file that ends in .gz is unpacked.

    Raises:
        ValueError: the file is missing, cannot be read or is no whole gzip file.
    """
    if not path.is_file():
        raise ValueError(f"{path} is missing, or is no file; check the path")
    try:
        with path.open("rb") as packed, gzip.open(packed) if path.suffix == ".gz" else packed as file:
            yield cast(BinaryIO, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is no whole gzip file ({error}); download or copy it again") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None


def lines(path: Path, name: str = "") -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file without their line ends, and their numbers, from 1. Arguments and errors as in
    `sized_lines`."""
    return ((number, line) for number, line, _ in sized_lines(path, name))


def sized_lines(path: Path, name: str = "") -> Iterator[tuple[int, str, int]]:
    """The lines of a UTF-8 file without their line ends, their numbers, from 1, and their sizes in bytes with line end.
    Only a line feed ends a line: U+2028 and U+0085 belong to the text. A byte-order mark is skipped. A file that ends
    in .gz is unpacked.

    Args:
        name: of a progress bar over the bytes; empty for none.

    Raises:
        ValueError: the file is missing, cannot be read, is no whole gzip file or is not UTF-8.
    """
    number = 0
    try:
        with unpacked(path) as file, progress_bar(name, path.stat().st_size, unit="B", delay=1) as progress:
            packed = getattr(file, "fileobj", file)
            for number, line in enumerate(file, start=1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                yield number, text.removesuffix("\n").removesuffix("\r"), len(line)
                progress.update(packed.tell() - progress.n)
    except UnicodeDecodeError as error:
        byte = f"byte {error.start} of it is 0x{error.object[error.start]:02x}"
        raise malformed(path, number, f"is not UTF-8 ({byte}); save the file as UTF-8") from None


def json_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """The JSON value of each line that is not blank, and its number, from 1.

    Raises:
        ValueError: as in `lines`, or a line is no JSON.
    """
    for number, line in lines(path):
        if line.strip():
            yield number, json_value(path, number, line)


def json_value(path: Path, number: int, line: str) -> Any:
    """The JSON value of a line.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise malformed(path, number, f"is no JSON ({error}); write one JSON value a line") from None


@contextmanager
def _parquet_file(path: Path) -> Iterator[ParquetFile]:
    import pyarrow  # takes a tenth of a second, and few commands read Parquet
    import pyarrow.parquet

    try:
        # Opened here, since Arrow takes no name that is not UTF-8.
        with path.open("rb") as file, pyarrow.parquet.ParquetFile(file) as table:
            yield table
    except pyarrow.ArrowException as error:
        fault = "is no Parquet file, or not a whole one"
        raise ValueError(f"{path} {fault} ({error}); download or copy it again") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None


def parquet_columns(path: Path) -> list[str]:
    """The names of a Parquet file's columns.

    Raises:
        ValueError: the file is missing or no Parquet file.
    """
    with _parquet_file(path) as table:
        return table.schema_arrow.names


def parquet_rows(path: Path, columns: Sequence[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a Parquet file and their numbers, from 1.

    Args:
        columns: to read, as far as the file has them; all if None.

    Raises:
        ValueError: the file is missing, no Parquet file, damaged, or has a column of these twice, a text that is not
            UTF-8, or a date that Python does not know.
    """
    import pyarrow

    number = 0
    with _parquet_file(path) as table:
        names = [name for name in table.schema_arrow.names if columns is None or name in columns]
        if len(names) > len({*names}):
            raise ValueError(f"{path} has two columns of one name; it has {', '.join(names)}")
        try:
            size = sum(table.metadata.row_group(group).total_byte_size for group in range(table.num_row_groups))
            rows_at_once = BYTES_AT_ONCE * table.metadata.num_rows // max(size, 1)
            for batch in table.iter_batches(min(max(rows_at_once, 1), ROWS_AT_ONCE), columns=names):
                for row in _as_python(batch):
                    number += 1
                    yield number, row
        except (OverflowError, UnicodeDecodeError) as error:
            rule = f"has a value that Python does not know ({error}); correct it, or leave its column out"
            raise malformed(path, number + 1, rule) from None
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{path} is damaged behind row {number} ({error}); download or copy it again") from None


def _as_python(batch: RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows of a batch; an error comes when its row does."""
    try:
        rows = batch.to_pylist()
    except (OverflowError, UnicodeDecodeError):
        rows = (row for place in range(len(batch)) for row in batch.slice(place, 1).to_pylist())
    yield from rows


def rows(path: Path, columns: Sequence[str] | None = None) -> Iterator[tuple[int, Any]]:
    """The rows of a Parquet file, or the JSON values of a file of lines, and their numbers, from 1.

    Raises:
        ValueError: as in `parquet_rows` and `json_rows`.
    """
    return parquet_rows(path, columns) if path.suffix.lower() == PARQUET else json_rows(path)
