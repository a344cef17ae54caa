"""CLEF 2003 (ELRA-E0008, licensed).

Arrange its files as documents/<language>/, any number of files as they come, topics/<language>.* (Top-de03.txt is
topics/de.txt) and qrels/<language>.*. A query is a topic's title and description; of a document all text fields are
read, but no keywords, which people assigned. Files may be ISO-8859-1.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

from evaluation.datasets.files import lines, write_documents, write_qrels, write_queries
from evaluation.datasets.languages import query_and_document_languages
from evaluation.recipes import RetrievalTask
from hmde.common.records import unpacked

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
        write_documents(output, language, (document for file in files for document in clef_documents(file)))
        qrels += [f"{line.lstrip('C')}\n" for _, line in lines(only_file(folder / "qrels", language))]
    for language in query_languages:
        write_queries(output, language, clef_topics(only_file(folder / "topics", language), language))
    write_qrels(output, task.split, qrels)


def only_file(folder: Path, language: str) -> Path:
    """The file of a language, whatever its name ends in.

    Raises:
        ValueError: there is none, or more than one.
    """
    files = sorted(folder.glob(f"{language}.*"))
    if len(files) != 1:
        raise ValueError(f"{folder} has {len(files)} files named {language}.*; it must have one")
    return files[0]


def clef_documents(file: Path) -> Iterator[tuple[str, str]]:
    """The documents of one SGML file, of which there may be several in it.

    Raises:
        ValueError: the file has none, or one has no DOCNO.
    """
    documents = _DOCUMENT.findall(clef_text(file))
    names = [re.search(r"<DOCNO>\s*(\S+)\s*</DOCNO>", document, re.IGNORECASE) for document in documents]
    if not documents or None in names:
        raise ValueError(
            f"{file} needs documents, <DOC> ... </DOC>, each with a <DOCNO>; leave only CLEF's files there"
        )
    for name, document in zip(names, documents):
        fields = (plain(content) for _, content in _FIELD.findall(document))
        yield name[1] if name else "", "\n".join(field for field in fields if field)


def clef_topics(file: Path, language: str) -> Iterator[tuple[str, str]]:
    """The id, without its C, and title and description of each topic.

    Raises:
        ValueError: the file has no topic, or one lacks a field, as where it is in another language.
    """
    tags = ("num", f"{language}-title", f"{language}-desc")
    topics = [
        [re.search(rf"<{tag}>(.*?)(?=<[^>]*>\s*)", topic, re.DOTALL | re.IGNORECASE) for tag in tags]
        for topic in _TOPIC.findall(clef_text(file))
    ]
    if not topics or not all(all(fields) for fields in topics):
        raise ValueError(f"{file} needs topics, <top> ... </top>, each with {', '.join(f'<{tag}>' for tag in tags)}")
    for fields in topics:
        name, title, description = (plain(field[1]) for field in fields if field)
        yield name.lstrip("C"), f"{title} {description}"


def clef_text(file: Path) -> str:
    """The text of a file in UTF-8 or, as CLEF's older files are, ISO-8859-1; unpacked if its name ends in .gz.

    Raises:
        ValueError: the file is missing, no whole gzip file, or UTF-8 but for some bytes.
    """
    with unpacked(file) as packed:
        content = packed.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        characters = content.decode("utf-8", errors="replace")
        if sum(character > "\x7f" for character in characters) > 2 * characters.count("\ufffd"):
            raise ValueError(f"{file} is UTF-8 but for byte {error.start}; mend it") from None
        text = content.decode("iso-8859-1")
    return text.replace("\r\n", "\n")


def plain(content: str) -> str:
    """The text in some markup, white space made single blanks."""
    return " ".join(html.unescape(_MARKUP.sub(" ", content)).split())
