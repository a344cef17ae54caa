"""Documents from files, one after another. Knows no model and no index.

A source is a folder, read with its subfolders and the folders it links to, or one file. hmde/documents/files.py has
the table of the kinds that are read. A PDF is a document a page, a presentation a slide, a book a chapter; any other
file is one document, or several parts if it is long. Two kinds are tables, a document a line or row:

    *.jsonl      each line is a JSON object with a "text"
    *.parquet    with a column "text"

A file that cannot be read is left out with a warning; one of another kind is counted. Lines and rows may also have a
"title", which becomes the first line of the text, a "language", an id, which is "id", "doc_id" or "concept_id", and
metadata. Blank lines are skipped. Rows whose text is null are skipped with a warning.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from hmde.common.extras import missing_extras_named
from hmde.common.files import files_below
from hmde.common.fingerprints import fingerprint
from hmde.common.records import rows, where
from hmde.documents.content import UnreadableFile
from hmde.documents.files import READERS, read_file

logger = logging.getLogger(__name__)

TABLES = (".jsonl", ".parquet")
DETECT = "detect"  # in place of a language: find it out
ID_COLUMNS = ("id", "doc_id", "concept_id")
# What programs keep for themselves, beside all whose names begin with a dot.
MACHINE_FILES = re.compile(
    r"(node_modules|__pycache__|__MACOSX|site-packages|CVS|\$RECYCLE\.BIN|System Volume Information)$"
    r"|(thumbs\.db|desktop\.ini)$|~\$",
    re.I,
)
# Columns of an index, which metadata may not take.
RESERVED = (
    *("id", "title", "language", "text", "headings", "content_hash", "words", "vector"),
    *("spans", "sentence_signs", "sentence_magnitudes", "sentence_lengths"),
)


@dataclass(frozen=True)
class Document:
    """A text and its origin. Lone surrogates, which no file can hold, become U+FFFD in all fields.

    Args:
        id: the file's path in the source; for a page `path#page=3`, slides, chapters and parts alike; for a line or row
            `path#id`, `path#number` if it has no id, and the id alone if `Columns` name its column.
        title: for a file without one, its name without the ending; for a page, `title, page 3`.
        language: ISO 639-1 code, for the rules of the sentence splitter; None if it is not known. Any other code of a
            language becomes this one: `DE`, `de-AT`, `deu` are `de`.
        text: what is encoded, shown and searched; of a line or row with a title, this is the first line.
        metadata: what else is known of it, to filter by and to show: strings, numbers and booleans. What is not known
            is left out.
        headings: of the text, as (begin, heading): the character at which each begins, and its words. At 0 stands the
            one under which the text begins, which may stand in the page or part before.

    Raises:
        ValueError: a field is of another type, also of one of numpy's, which differs from Python's where it is stored;
            metadata have a name that cannot be a column, or a number that is not finite or does not fit into 64 bits.
    """

    id: str
    title: str
    language: str | None
    text: str
    metadata: dict[str, str | int | float | bool] = field(default_factory=dict, hash=False)
    headings: tuple[tuple[int, str], ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for name in ("id", "title", "language", "text"):
            value = getattr(self, name)
            if type(value) is not str and (value is not None or name != "language"):
                wanted = "a string or None" if name == "language" else "a string"
                raise ValueError(f"{self.id}: {name} is {value!r:.80}; it must be {wanted}, of Python's type str")
            if value is not None and not value.isascii():
                object.__setattr__(self, name, _without_surrogates(value))
        object.__setattr__(self, "language", language_code(self.language))
        for name, value in self.metadata.items():
            if not name.isidentifier() or name.startswith("_") or name.lower() in RESERVED:
                raise ValueError(f"{self.id}: metadata may not be named {name!r}; rename it to a word such as `year`")
            if type(value) not in (str, int, float, bool):
                raise ValueError(
                    f"{self.id}: {name} is {value!r}; it must be a string, a number, true or false, of Python's types"
                )
            too_large = isinstance(value, int) and abs(value) >= 2**63
            if too_large or (isinstance(value, float) and not math.isfinite(value)):
                raise ValueError(f"{self.id}: {name} is {value}; give a finite number of at most 64 bits, or none")
            if isinstance(value, str) and not value.isascii():
                self.metadata[name] = _without_surrogates(value)

    @property
    def content_hash(self) -> str:
        """Changes when something changes that the document's vector depends on."""
        return fingerprint(self.language, self.text)


@dataclass(frozen=True)
class Columns:
    """Which columns documents are read from. Those of text, language and id, if named here, must be in every row."""

    text: str = "text"
    """The text of a document."""
    language: str | None = None
    """ISO 639-1 codes; `language` if not given."""
    id: str | None = None
    """Strings or integers that name a document in the whole collection. If not given, its id is the path of its file
    and its `id`, `doc_id` or `concept_id`, or else the number of the row."""
    metadata: list[str] = field(default_factory=list)
    """Columns of strings, numbers, booleans or dates to keep with each document: [year,author]. Rows may lack them."""


@dataclass(frozen=True)
class Documents:
    """All documents of a source, in the order of their files' names. Each iteration reads the files again.

    Args:
        source: a folder or a file; see the description of this module.
        language: of the documents that do not name their own; DETECT finds it out from the text.
        columns: of lines and rows.
        strict: whether a file that cannot be read ends the iteration. If not, it is left out, with a warning.
        unreadable: the files that were left out, and why. A file that is not there any more is not among them.
        notes: what was guessed, or could not be read, of files that were read.
        left_out: how many files were left out, by reason.

    Raises:
        ValueError: the source does not exist. On iteration: it holds no document; or a table cannot be read or is
            malformed, or with `strict` a file cannot be read; the error names the file and the line or row.
    """

    source: str | Path
    language: str | None = None
    columns: Columns = Columns()
    strict: bool = False
    unreadable: dict[str, str] = field(default_factory=dict, init=False, compare=False)
    notes: dict[str, str] = field(default_factory=dict, init=False, compare=False)
    left_out: Counter[str] = field(default_factory=Counter, init=False, compare=False)

    def __post_init__(self) -> None:
        if not Path(self.source).exists():
            raise ValueError(f"{self.source} is missing; give a folder of {_endings()}, or one such file")

    def __iter__(self) -> Iterator[Document]:
        count = 0
        known = {**self.unreadable, **self.notes}  # documents are read twice, and told of once
        for told in (self.unreadable, self.notes, self.left_out):
            told.clear()
        for file, name in files_of(Path(self.source), self.left_out):
            is_table = file.suffix.lower() in TABLES
            for document in self._rows(file, name) if is_table else self._sections(file, name, known):
                if self.language and not document.language:
                    language = detected_language(document.text) if self.language == DETECT else self.language
                    document = replace(document, language=language)
                yield document
                count += 1
        if not count:
            raise ValueError(f"{self.source} holds no document; documents are files that end in {_endings()}")

    def _sections(self, file: Path, name: str, known: dict[str, str]) -> Iterator[Document]:
        """The documents of a file that is no table."""
        try:
            content = read_file(file)
        except UnreadableFile as error:
            if self.strict:
                raise
            self.unreadable[name] = str(error)
            self.left_out[error.reason] += 1
            if name not in known:
                logger.warning("%s; it is left out", error)
            return
        if content.notes:
            self.notes[name] = "; ".join(content.notes)
            if name not in known:
                logger.warning("%s %s", file, self.notes[name])
        file_title = content.title or _readable(file.stem)
        headings: tuple[tuple[int, str], ...] = ()
        for place, text in content.sections:
            anchor = re.sub(r" (\d+) ?", r"=\1&", place).rstrip("&")
            id, title = (f"{name}#{anchor}", f"{file_title}, {place}") if place else (name, file_title)
            headings = _headings(text, content.headings, headings)
            yield Document(id, title, content.language, text, headings=headings)

    def _rows(self, file: Path, name: str) -> Iterator[Document]:
        """The documents of a table."""
        wanted = [self.columns.text, "title", self.columns.language or "language"]
        wanted += [*self.columns.metadata, *([self.columns.id] if self.columns.id else ID_COLUMNS)]
        for number, row in rows(file, wanted):
            document = parse_row(row, name, number, self.columns, where(file, number))
            if document is not None:
                yield document


def parse_row(row: Any, file: str, number: int, columns: Columns, origin: str) -> Document | None:
    """The document of a line or row; None if its text is null.

    Args:
        file, number: its id, if the row has none.
        origin: where the row stands, for errors.

    Raises:
        ValueError: the row breaks a rule, which the error names.
    """
    if not isinstance(row, dict):
        raise ValueError(f'{origin}: is no object; write {{"{columns.text}": ...}} a line')
    for column in (columns.text, columns.language, columns.id):
        if column is not None and column not in row:
            raise ValueError(f"{origin}: there is no {column!r}; every row must have one")
    text, title, language = (row.get(column) for column in (columns.text, "title", columns.language or "language"))
    for column, value in ((columns.text, text), ("title", title), (columns.language or "language", language)):
        if not isinstance(value, (str, type(None))):
            raise ValueError(f"{origin}: {column} is {value!r}; it must be a string")
    ids = (row[column] for column in ID_COLUMNS if row.get(column) is not None)
    id = row[columns.id] if columns.id else next(ids, number)
    if isinstance(id, bool) or not isinstance(id, (str, int)):
        raise ValueError(f"{origin}: {columns.id or 'the id'} is {id!r}; it must be a string or an integer")
    if text is None:
        logger.warning("%s: the text is null; it is skipped", origin)
        return None
    if title and not re.match(rf"{re.escape(title)}(?!\w)", text):  # "Romane" does not begin with the title "Rom"
        text = f"{title}\n{text}"
    metadata = {name: value for name in columns.metadata if (value := _plain(row.get(name))) is not None}
    name = str(id) if columns.id else f"{file}#{id}"
    return Document(name, title or str(id), language or None, text, metadata)


def distinct(documents: Iterable[Document]) -> Iterator[Document]:
    """The documents, unchanged.

    Raises:
        ValueError: two have the same id.
    """
    seen = set()
    for document in documents:
        if document.id in seen:
            raise ValueError(f"the id {document.id} is used twice; ids must differ within a collection")
        seen.add(document.id)
        yield document


def files_of(source: Path, left_out: Counter[str]) -> Iterator[tuple[Path, str]]:
    """The files with documents in a folder and its subfolders, sorted; or the one file. Endings may be in capitals.

    Args:
        left_out: counts the other files, by reason.

    Yields:
        each file, and its path in the folder as text.

    Raises:
        ValueError: a folder cannot be read.
    """

    def is_hidden(path: Path) -> bool:
        hidden = path.name.startswith(".") or MACHINE_FILES.match(path.name) is not None
        if hidden:
            left_out["hidden, or of a program"] += 1
        return hidden

    try:
        entries = [source] if source.is_file() else sorted(files_below(source, is_hidden))
    except OSError as error:
        raise ValueError(f"{error.filename} cannot be read: {error.strerror}") from None
    for file in entries:
        if file.suffix.lower() not in (*READERS, *TABLES):
            left_out[f"of a kind that is not read: {file.suffix.lower() or 'without an ending'}"] += 1
        elif file.is_file():
            yield file, _readable(file.name if file == source else str(file.relative_to(source)))
        else:
            left_out["broken link or no file"] += 1
            logger.warning("%s is no file that can be read (a broken link?); it is skipped", _readable(str(file)))


def check_apart(output: Path, source: Path) -> None:
    """
    Raises:
        ValueError: the output lies in the source, so it would be read as documents.
    """
    if output.resolve().is_relative_to(source.resolve()):
        raise ValueError(f"the output {output} lies in {source} and would be read as documents; put it elsewhere")


def _headings(text: str, lines: frozenset[str], before: tuple[tuple[int, str], ...]) -> tuple[tuple[int, str], ...]:
    """The headings of a section, see `Document`.

    Args:
        lines: the lines that are headings.
        before: the headings of the section before.

    >>> _headings("of a part.\\nThe end\\nWell.", frozenset({"The end"}), ((0, "Begin"), (7, "Middle")))
    ((0, 'Middle'), (11, 'The end'))
    """
    found = [(line.start(), line[0].strip()) for line in re.finditer(r"[^\n]+", text) if line[0].strip() in lines]
    under = [(0, before[-1][1])] if before and (0, text.split("\n", 1)[0].strip()) not in found[:1] else []
    return tuple(under + found)


def _readable(name: str) -> str:
    """A file's name as text: bytes that are not UTF-8 are written as `\\xff`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _plain(value: Any) -> Any:
    """A date as ISO 8601 writes it, which sorts as dates do; a decimal as a float; None for NaN, which stands in empty
    cells of tables; any other value as it is."""
    value = value.isoformat() if isinstance(value, date) else float(value) if isinstance(value, Decimal) else value
    return None if value != value else value


def _without_surrogates(text: str) -> str:
    """
    >>> _without_surrogates("cat \\ud800, \\ud83d\\ude00") == "cat \\ufffd, \\U0001f600"
    True
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@lru_cache
def language_code(code: str | None) -> str | None:
    """The shortest code of a language, as ISO 639 has it, without script and region; what is no code stays as it is.

    >>> [language_code(code) for code in ("DE", "de-AT", "deu", "iw", "zh_Hant", "und", "", "no code")]
    ['de', 'de', 'de', 'he', 'zh', None, None, 'no code']
    """
    if not code:
        return None
    import langcodes

    try:
        language = langcodes.get(code.strip()).language
    except langcodes.LanguageTagError:
        return code
    return None if language in ("und", None) else language


def detected_language(text: str) -> str:
    """The ISO 639-1 code of the language that a text most probably has."""
    with missing_extras_named():
        import py3langid  # takes a second, and few need it
    return py3langid.classify(text[:4_000])[0]


def _endings() -> str:
    return ", ".join(f"*{ending}" for ending in (*READERS, *TABLES))
