"""Readers of text files line by line and of tables row by row: UTF-8, gzip, JSON lines and Parquet.

An error names the file, the line or row, the rule that it breaks, and the way out. Files are streamed.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from hmde.common.progress import progress_bar

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile

# Limits of what is read at once. They hold whatever a file says of itself, so that no file takes all memory.
ROWS_AT_ONCE = 1024  # most rows of a Parquet file
BYTES_AT_ONCE = 2**26  # of a Parquet file; fewer rows are read where they are large
LONGEST_LINE = 2**28  # in bytes
MOST_VALUES = 2**23  # of the JSON of a line
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
        ValueError: the file is missing, cannot be read, is no whole gzip file or is not UTF-8, or a line is longer than
            LONGEST_LINE.
    """
    number = 0
    try:
        with unpacked(path) as file, progress_bar(name, path.stat().st_size, unit="B", delay=1) as progress:
            packed = getattr(file, "fileobj", file)
            for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE + 1), b""), start=1):
                if len(line) > LONGEST_LINE:
                    raise malformed(path, number, f"is longer than {LONGEST_LINE >> 20} MiB; divide the text")
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                yield number, text.removesuffix("\n").removesuffix("\r"), len(line)
                progress.update(packed.tell() - progress.n)
    except UnicodeDecodeError as error:
        byte = f"byte {error.start} of it is 0x{error.object[error.start]:02x}"
        raise malformed(path, number, f"is not UTF-8 ({byte}); save the file as UTF-8") from None


def read_text(path: Path) -> str:
    """A whole UTF-8 file. A byte-order mark is no text.

    Raises:
        ValueError: the file cannot be read or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte {error.start} is 0x{error.object[error.start]:02x}"
        raise ValueError(f"{path} is not UTF-8 ({byte}); save the file as UTF-8") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None


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
        ValueError: it is no JSON, or has more than MOST_VALUES values, each of which takes many times its length.
    """
    if len(line) > MOST_VALUES and sum(map(line.count, "[{,:")) > MOST_VALUES:
        raise malformed(path, number, f"has more than {MOST_VALUES} JSON values; leave out what is no text")
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise malformed(path, number, f"is no JSON ({error}); write one JSON value a line") from None


@contextmanager
def _parquet_file(path: Path) -> Iterator[ParquetFile]:
    """A file of which equal texts are read once, as they are stored, and not once for each row."""
    import pyarrow  # takes a tenth of a second, and few commands read Parquet
    import pyarrow.parquet

    try:
        # Opened here, since Arrow takes no name that is not UTF-8.
        with path.open("rb") as file:
            metadata = pyarrow.parquet.read_metadata(file)
            columns = map(metadata.schema.column, range(metadata.num_columns))
            texts = [
                column.path for column in columns if column.physical_type == "BYTE_ARRAY" and "." not in column.path
            ]
            with pyarrow.parquet.ParquetFile(file, metadata=metadata, read_dictionary=texts) as table:
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
        ValueError: the file is missing, no Parquet file, damaged, or has a column of these twice, a text that
            is not UTF-8, or a date that Python does not know.
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
                for part in _written_out(batch):
                    for row in _as_python(part):
                        number += 1
                        yield number, row
        except UnicodeDecodeError as error:
            raise malformed(path, number + 1, f"is not UTF-8 ({error}); write the file anew") from None
        except OverflowError as error:
            rule = f"a date lies outside of the years 1 to 9999 ({error}); correct it, or leave its column out"
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


def _written_out(batch: RecordBatch) -> Iterator[RecordBatch]:
    """A batch in which a text may stand for many rows, as batches in which each row has its own text: of at most
    BYTES_AT_ONCE, or of one row."""
    import pyarrow
    import pyarrow.compute as compute

    def is_text(column: Any) -> bool:
        return isinstance(column, pyarrow.DictionaryArray)

    texts = filter(is_text, batch.columns)
    sizes = [compute.sum(compute.binary_length(text.dictionary).take(text.indices)).as_py() or 0 for text in texts]
    if sum(sizes) > BYTES_AT_ONCE and len(batch) > 1:
        for part in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
            yield from _written_out(part)
    elif not batch.columns:  # `from_arrays` would forget how many rows it has
        yield batch
    else:
        columns = [column.dictionary_decode() if is_text(column) else column for column in batch.columns]
        yield pyarrow.RecordBatch.from_arrays(columns, batch.schema.names)


def rows(path: Path, columns: Sequence[str] | None = None) -> Iterator[tuple[int, Any]]:
    """The rows of a Parquet file, or the JSON values of a file of lines, and their numbers, from 1.

    Raises:
        ValueError: as in `parquet_rows` and `json_rows`.
    """
    return parquet_rows(path, columns) if path.suffix.lower() == PARQUET else json_rows(path)
