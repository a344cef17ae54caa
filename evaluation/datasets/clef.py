"""CLEF 2003 (ELRA-E0008, licensed).

Arrange its files as documents/<language>/, any number of files as they come, topics/<language>.* (Top-de03.txt is
topics/de.txt) and qrels/<language>.*. A query is a topic's title and description; of a document all text fields are
read, but no keywords, which people assigned. Files may be ISO-8859-1.
"""

from __future__ import annotations

import gzip
import html
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from common.files import write_text
from common.records import malformed
from evaluation.datasets.files import lines, only_file, qrels_file, write_documents, write_queries
from evaluation.datasets.languages import query_and_document_languages
from evaluation.recipes import RetrievalTask

# The fields of a CLEF document that an author wrote. TI, LD and TX are the news agencies' title, lead and text.
TEXT_FIELDS = "HEADLINE|TITLE|SUBTITLE|LEAD|TEXT|BODY|TI|ST|LD|TX|WR|CAPTION"
_FIELD = re.compile(rf"<({TEXT_FIELDS})>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
_DOCUMENT = re.compile(r"<DOC>(.*?)</DOC>", re.DOTALL | re.IGNORECASE)
_TOPIC = re.compile(r"<top>(.*?)</top>", re.DOTALL | re.IGNORECASE)
_MARKUP = re.compile(r"<[^>]*>")


def convert(task: RetrievalTask, output: Path) -> None:
    query_languages, document_languages = query_and_document_languages(task.pairs)
    folder = Path(task.data)
    qrels = []
    for language in document_languages:
        files = sorted(path for path in (folder / "documents" / language).rglob("*") if path.is_file())
        if not files:
            raise ValueError(f"{folder / 'documents' / language} has no files; put the documents of {language} there")
        write_documents(output, language, (document for file in files for document in clef_documents(file)))
        file = only_file(folder / "qrels", language)
        for line_number, line in lines(file):
            fields = line.split()
            if len(fields) != 4:
                raise malformed(file, line_number, f"is no judgement; it has {len(fields)} fields, not 4")
            qrels.append(" ".join([fields[0].lstrip("C"), *fields[1:]]))
    for language in query_languages:
        write_queries(output, language, clef_topics(only_file(folder / "topics", language), language))
    write_text(qrels_file(task, output), "".join(line + "\n" for line in qrels))


def clef_documents(file: Path) -> Iterator[tuple[str, str]]:
    """The documents of one SGML file, of which there may be several in it.

    Raises:
        ValueError: the file has none, or one has no DOCNO.
    """
    documents = _DOCUMENT.findall(clef_text(file))
    if not documents:
        raise ValueError(f"{file} has no <DOC> ... </DOC>; leave only CLEF's documents in the folder")
    for index, document in enumerate(documents, start=1):
        name = re.search(r"<DOCNO>\s*(\S+)\s*</DOCNO>", document, re.IGNORECASE)
        if name is None:
            raise ValueError(f"{file}, document {index}: has no <DOCNO>; it cannot be judged without")
        fields = (plain(content) for _, content in _FIELD.findall(document))
        yield name[1], "\n".join(field for field in fields if field)


def clef_topics(file: Path, language: str) -> Iterator[tuple[str, str]]:
    """The id, without its C, and title and description of each topic.

    Raises:
        ValueError: the file has no topic, or one lacks a field, as where it is in another language.
    """
    topics = _TOPIC.findall(clef_text(file))
    if not topics:
        raise ValueError(f"{file} has no <top> ... </top>; give CLEF's file of topics in {language}")
    for index, topic in enumerate(topics, start=1):
        fields = [
            re.search(rf"<{tag}>(.*?)(?=<[^>]*>\s*)", topic, re.DOTALL | re.IGNORECASE)
            for tag in ("num", rf"{language}-title", rf"{language}-desc")
        ]
        if not all(fields):
            raise ValueError(f"{file}, topic {index}: lacks <num>, <{language}-title> or <{language}-desc>")
        name, title, description = (plain(field[1]) for field in fields if field)
        yield name.lstrip("C"), f"{title} {description}"


def clef_text(file: Path) -> str:
    """The text of a file in UTF-8 or, as CLEF's older files are, ISO-8859-1; unpacked if its name ends in .gz.

    Raises:
        ValueError: the file is UTF-8 but for some bytes, or no whole gzip file.
    """
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{file} is no whole gzip file ({error}); take it anew") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        characters = content.decode("utf-8", errors="replace")
        if sum(character > "\x7f" for character in characters) > 2 * characters.count("\ufffd"):
            line_number = content.count(b"\n", 0, error.start) + 1
            raise malformed(file, line_number, f"is not UTF-8 ({error.reason}), as the file is; mend it") from None
        text = content.decode("iso-8859-1")
    return text.replace("\r\n", "\n")


def plain(content: str) -> str:
    """The text in some markup, white space made single blanks."""
    return " ".join(html.unescape(_MARKUP.sub(" ", content)).split())
