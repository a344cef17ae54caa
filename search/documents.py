"""Documents from files. Knows no model and no index.

A source is a folder, searched with its subfolders, or one file:

    *.txt, *.md    a document a file, in UTF-8
    *.jsonl        a document a line, an object with a "text"
    *.parquet      a document a row, with a column "text"

Lines and rows may also have a "title", a "language" (ISO 639-1) and an id: "id", "doc_id" or "concept_id".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet

TEXT_FILES = (".txt", ".md")
TABLES = (".jsonl", ".parquet")
ID_COLUMNS = ("id", "doc_id", "concept_id")


@dataclass(frozen=True)
class Document:
    """A text and where it is from.

    Args:
        id: the file's path in the source; for a line or row, `path#id`, or `path#number` where it has no id.
        title: of a file, its name without the ending.
        language: ISO 639-1 code, for the sentence splitter's rules; None where it is not known.
        text: what is encoded, shown and searched for.
    """

    id: str
    title: str
    language: str | None
    text: str

    @property
    def content_hash(self) -> str:
        """Changes when what the document's vector depends on changes."""
        return hashlib.sha256(f"{self.language}\n{self.text}".encode(errors="surrogatepass")).hexdigest()


def read_documents(source: str | Path, language: str | None = None) -> list[Document]:
    """All documents of a source, in the order of their files' names.

    Args:
        source: see the module's description.
        language: of the documents that do not say their own.

    Raises:
        ValueError: there is no such source, it holds no document, a file is malformed (with the line), or an id is
            used twice.
    """
    source = Path(source)
    if not source.exists():
        raise ValueError(f"{source} is missing; give a folder of {_endings()}, or one such file")
    files = sorted(source.rglob("*")) if source.is_dir() else [source]
    documents: dict[str, Document] = {}
    for file in files:
        if file.suffix not in TEXT_FILES + TABLES or not file.is_file():
            continue
        name = str(file.relative_to(source)) if source.is_dir() else file.name
        for document in _read_file(file, name, language):
            if document.id in documents:
                raise ValueError(f"{file}: the id of {document.id} is used twice; ids must differ within a file")
            documents[document.id] = document
    if not documents:
        raise ValueError(f"{source} holds no document; documents are files that end in {_endings()}")
    return list(documents.values())


def _read_file(file: Path, name: str, language: str | None) -> Iterator[Document]:
    if file.suffix in TEXT_FILES:
        try:
            yield Document(name, file.stem, language, file.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise ValueError(f"{file} is not UTF-8 ({error.reason}); save it as UTF-8") from None
        return
    for number, row in enumerate(_rows(file), start=1):
        for column in ("text", "title", "language"):
            if not isinstance(row.get(column), (str, type(None))):
                raise ValueError(f"{file}, row {number}: {column} is {row[column]!r}; it must be a string")
        if row.get("text") is None:
            raise ValueError(f"{file}, row {number}: there is no text; give every row a string named text")
        id = next((row[column] for column in ID_COLUMNS if row.get(column) is not None), number)
        yield Document(f"{name}#{id}", row.get("title") or str(id), row.get("language") or language, row["text"])


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    if file.suffix == ".parquet":
        try:
            yield from pyarrow.parquet.read_table(file).to_pylist()
        except pyarrow.ArrowInvalid as error:
            raise ValueError(f"{file} is no Parquet file: {error}") from None
        return
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except ValueError as error:  # no UTF-8, or no JSON
                raise ValueError(f"{file}, row {number} is no JSON: {error}; write one object a line") from None
            if not isinstance(row, dict):
                raise ValueError(f'{file}, row {number} is no object; write {{"text": ...}} a line')
            yield row


def _endings() -> str:
    return ", ".join(f"*{ending}" for ending in TEXT_FILES + TABLES)
