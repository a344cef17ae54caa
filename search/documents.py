"""Documents from files, one after another. Knows no model and no index.

A source is a folder, searched with its subfolders and the folders it links to, or one file:

    *.txt, *.md    a document a file, in UTF-8
    *.jsonl        a document a line, an object with a "text"
    *.parquet      a document a row, with a column "text"

Lines and rows may also have a "title", a "language" (ISO 639-1) and an id: "id", "doc_id" or "concept_id". Blank lines
are no documents, nor are rows whose text is null, of which a warning tells. A line ends with a line feed and with
nothing else: U+2028 and U+0085 belong to the text.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from common.fingerprints import fingerprint

logger = logging.getLogger(__name__)

TEXT_FILES = (".txt", ".md")
TABLES = (".jsonl", ".parquet")
ID_COLUMNS = ("id", "doc_id", "concept_id")
COLUMNS = ("text", "title", "language", *ID_COLUMNS)


@dataclass(frozen=True)
class Document:
    """A text and where it is from. A lone surrogate, which no file can hold, becomes U+FFFD in all of it.

    Args:
        id: the file's path in the source; for a line or row, `path#id`, or `path#number` where it has no id.
        title: of a file, its name without the ending.
        language: ISO 639-1 code, for the rules of the sentence splitter; None where it is not known.
        text: what is encoded, shown and searched for.
    """

    id: str
    title: str
    language: str | None
    text: str

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not value.isascii():
                object.__setattr__(self, field.name, _without_surrogates(value))

    @property
    def content_hash(self) -> str:
        """Changes when what the document's vector depends on changes."""
        return fingerprint(self.language, self.text)


@dataclass(frozen=True)
class Documents:
    """All documents of a source, in the order of their files' names. The files are read anew at each iteration.

    Args:
        source: a folder or a file; see the module's description.
        language: of the documents that do not say their own.

    Raises:
        ValueError: at iteration; there is no such source, it holds no document, or a file cannot be read or is
            malformed. Names the file, and the row or the byte.
    """

    source: Path
    language: str | None = None

    def __iter__(self) -> Iterator[Document]:
        count = 0
        for file, name in files_of(self.source, TEXT_FILES + TABLES):
            for document in self._read(file, name):
                yield document
                count += 1
        if not count:
            endings = _endings(TEXT_FILES + TABLES)
            raise ValueError(f"{self.source} holds no document; documents are files that end in {endings}")

    def _read(self, file: Path, name: str) -> Iterator[Document]:
        if file.suffix.lower() in TEXT_FILES:
            yield Document(name, _printable(file.stem), self.language, _read_text(file))
            return
        for number, row in read_rows(file, COLUMNS):
            for column in ("text", "title", "language"):
                if not isinstance(row.get(column), (str, type(None))):
                    raise ValueError(f"{file}, row {number}: {column} is {row[column]!r}; it must be a string")
            if "text" not in row:
                raise ValueError(f"{file}, row {number}: there is no text; give every row a string named text")
            if row["text"] is None:
                logger.warning("%s, row %d: the text is null; it is left out", file, number)
                continue
            id = next((row[column] for column in ID_COLUMNS if row.get(column) is not None), number)
            if isinstance(id, bool) or not isinstance(id, (str, int)):
                raise ValueError(f"{file}, row {number}: the id is {id!r}; it must be a string or an integer")
            yield Document(
                f"{name}#{id}", row.get("title") or str(id), row.get("language") or self.language, row["text"]
            )


def files_of(source: Path, endings: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    """The files of a folder and of its subfolders whose names end so, in either case; or the one file.

    Yields:
        each file, and its path in the folder.

    Raises:
        ValueError: there is no such source, or a folder cannot be read.
    """
    if not source.exists():
        raise ValueError(f"{source} is missing; give a folder of {_endings(endings)}, or one such file")
    if source.is_file():
        if source.suffix.lower() in endings:
            yield source, _printable(source.name)
        return
    files = [file for file in _walk(source, frozenset()) if file.suffix.lower() in endings]
    for file in sorted(files):
        if file.is_file():
            yield file, _printable(str(file.relative_to(source)))
        else:
            logger.warning("%s is no file that can be read (a broken link?); it is left out", _printable(str(file)))


def read_rows(file: Path, columns: Sequence[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a .jsonl or .parquet file with their numbers, from 1.

    Args:
        file: is read row by row.
        columns: that are read of a Parquet file, as far as it has them; all if None.

    Raises:
        ValueError: the file cannot be read or is malformed.
    """
    try:
        if file.suffix.lower() == ".parquet":
            # Opened here, since Arrow takes no name that is not UTF-8.
            with file.open("rb") as opened, pyarrow.parquet.ParquetFile(opened) as table:
                names = [name for name in table.schema_arrow.names if columns is None or name in columns]
                batches = table.iter_batches(1024, columns=names)
                yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)
        else:
            with file.open("rb") as lines:
                yield from (
                    (number, _parse(file, number, line)) for number, line in enumerate(lines, 1) if line.strip()
                )
    except pyarrow.ArrowException as error:
        raise ValueError(f"{file} is no Parquet file: {error}") from None
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror or error}") from None


def _parse(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}, row {number} is not UTF-8 ({_position(error)}); save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}, row {number} is no JSON: {error}; write one object a line") from None
    if not isinstance(row, dict):
        raise ValueError(f'{file}, row {number} is no object; write {{"text": ...}} a line')
    return row


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 ({_position(error)}); save it as UTF-8") from None
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None


def _walk(folder: Path, above: frozenset[tuple[int, int]]) -> Iterator[Path]:
    """What lies in a folder and below, links followed, but not into a folder that one is already in."""
    try:
        status = folder.stat()
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise ValueError(f"{folder} cannot be read: {error.strerror}") from None
    within = above | {(status.st_dev, status.st_ino)}
    for entry in entries:
        if not entry.is_dir():
            yield entry
        elif (entry.stat().st_dev, entry.stat().st_ino) not in within:
            yield from _walk(entry, within)


def _position(error: UnicodeDecodeError) -> str:
    return f"byte {error.start} is 0x{error.object[error.start]:02x}"


def _printable(name: str) -> str:
    """A file's name, in which bytes that are no text are written as `\\xff`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _without_surrogates(text: str) -> str:
    """
    >>> _without_surrogates("cat \\ud800, \\ud83d\\ude00") == "cat \\ufffd, \\U0001f600"
    True
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _endings(endings: tuple[str, ...]) -> str:
    return ", ".join(f"*{ending}" for ending in endings)
