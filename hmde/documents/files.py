"""Texts of files that hold one document each: plain text, PDF, HTML, DOCX, PPTX and EPUB.

The libraries are those of the extra `files`, imported when the first such file is read. A PDF is read page by page, a
presentation slide by slide, a book chapter by chapter, so that a hit tells the place. PDFium, the PDF reader of Chrome,
is fast and withstands damaged files. One library for all formats was no choice: markitdown knows no pages and takes a
damaged DOCX for text, docling needs models of the Hub.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any, NamedTuple
from urllib.parse import unquote

from hmde.common.records import read_text

Section = tuple[str, str]  # its place, such as "page 3", empty for the whole file; and its text

# Elements of an HTML page whose text nobody reads, and elements that do not end a line.
_UNREAD = ["script", "style", "template", "noscript", "svg", "nav", "footer", "aside", "select", "button", "rt", "rp"]
_INLINE = frozenset(
    "a abbr b bdi bdo big cite code data del dfn em font i img ins kbd mark q ruby s samp small span strong sub sup "  # noqa: SIM905
    "time tt u var wbr".split()
)
_UNTITLED = ("Word Document", "PowerPoint Presentation")  # what stands where nobody has given a title
_OLE = b"\xd0\xcf\x11\xe0"  # begins an encrypted Office file, and one of Office 97
_FULL_LINE = 0.75  # of a page's long lines: a shorter line ends a paragraph


class UnreadableFile(ValueError):
    """A file is damaged or encrypted, holds no text, or needs a library that is not installed."""


class Content(NamedTuple):
    """What a file holds: the title and the language (ISO 639-1) that it names, None if it names none, and its text."""

    title: str | None
    language: str | None
    sections: list[Section]


def read_file(file: Path) -> Content:
    """
    Raises:
        UnreadableFile: names the file and what is wrong with it.
    """
    try:
        content = READERS[file.suffix.lower()](file)
    except UnreadableFile as error:
        raise UnreadableFile(f"{file} {error}") from None
    except ImportError as error:
        raise UnreadableFile(f"{file} needs {error.name}, of the extra `files`: pip install '.[files]'") from None
    except OSError as error:
        raise UnreadableFile(f"{file} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # on damaged files, the libraries raise errors of all kinds
        raise UnreadableFile(f"{file} is damaged ({error}); download or copy it again") from error
    title, language, sections = content
    sections = [(place, text) for place, text in sections if text.strip()]
    if not sections:
        plain = file.suffix.lower() in PLAIN
        way_out = "write some, or remove the file" if plain else "if it is scanned, recognise its text first (ocrmypdf)"
        raise UnreadableFile(f"{file} holds no text; {way_out}")
    title = (title or "").strip()
    code = re.match(r"[a-z]{2}(?![a-z])", (language or "").lower())
    return Content(None if title in ("", *_UNTITLED) else title, code[0] if code else None, sections)


def _plain(file: Path) -> Content:
    try:
        return Content(None, None, [("", read_text(file))])
    except ValueError as error:
        raise UnreadableFile(str(error).removeprefix(f"{file} ")) from None


def _pdf(file: Path) -> Content:
    import pypdfium2

    try:
        pdf = pypdfium2.PdfDocument(file.read_bytes())
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise UnreadableFile("is encrypted; save it without its password") from None
        raise
    pages = [(f"page {number}", _reflowed(page.get_textpage().get_text_range())) for number, page in enumerate(pdf, 1)]
    return Content(pdf.get_metadata_value("Title"), None, pages)


def _reflowed(page: str) -> str:
    """The text of a page with a line for each paragraph, since a line break ends a sentence.

    A line goes on in the next one if it is about as long as the page's long lines. A word that is divided at the end of
    a line is put together: PDFium writes U+FFFE or U+0002 for its hyphen, often without a line break behind it.

    >>> _reflowed("Title\\r\\nThe first line of a para\\ufffe\\r\\ngraph, and the second\\r\\nline.\\r\\nAnother one.")
    'Title\\nThe first line of a paragraph, and the second line.\\nAnother one.'
    """
    lines = [line.strip() for line in re.sub("[\ufffe\x02](\r\n?|\n)?", "\x02\n", page).splitlines()]
    lines = [line for line in lines if line]
    lengths = sorted(len(line) for line in lines)
    long = lengths[-1 - len(lengths) // 10] if lengths else 0
    text = ""
    for line in lines:
        full = len(line) >= _FULL_LINE * long and not line.endswith((".", "!", "?", ":", "。", "！", "？"))
        text += line[:-1] if line.endswith("\x02") else line + (_joint(line) if full else "\n")
    return text.strip()


def _joint(line: str) -> str:
    """What stands between a line and the next one: nothing in scripts without spaces between words."""
    return "" if re.search(r"[\u0e00-\u0eff\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]$", line) else " "


def _html(file: Path) -> Content:
    page = _parsed_html(file.read_bytes())
    language = page.get("lang") or page.get("xml:lang")
    return Content(page.findtext(".//title"), language, [("", _html_text(page))])


def _parsed_html(content: bytes) -> Any:
    from lxml import etree, html

    try:
        content.decode("utf-8")
        encoding = "utf-8"  # which many pages forget to say, and no other encoding looks like
    except UnicodeDecodeError:
        encoding = None
    page = html.document_fromstring(content, html.HTMLParser(encoding=encoding, no_network=True))
    etree.strip_elements(page, etree.Comment, etree.ProcessingInstruction, *_UNREAD, with_tail=False)
    return page


def _html_text(page: Any) -> str:
    """The text of the main element, or of the body, a line for each paragraph."""
    from lxml import etree

    mains = page.findall(".//main")
    pieces = []
    body = mains[0] if len(mains) == 1 else page.find("body")
    for event, element in etree.iterwalk(body, ("start", "end")) if body is not None else ():
        pieces.append("" if element.tag in _INLINE else "\n")
        text = element.text if event == "start" else element.tail if element is not body else None
        pieces.append(re.sub(r"\s+", " ", text or ""))
    return "\n".join(line.strip() for line in "".join(pieces).splitlines() if line.strip())


def _docx(file: Path) -> Content:
    import docx

    document = docx.Document(_office_file(file))
    properties = document.core_properties
    return Content(properties.title, properties.language, [("", _office_text(document.element.body))])


def _pptx(file: Path) -> Content:
    import pptx

    presentation = pptx.Presentation(_office_file(file))
    properties = presentation.core_properties
    slides = [(f"slide {number}", _office_text(slide.element)) for number, slide in enumerate(presentation.slides, 1)]
    return Content(properties.title, properties.language, slides)


def _office_file(file: Path) -> BytesIO:
    content = file.read_bytes()
    if content.startswith(_OLE):
        raise UnreadableFile(f"is encrypted, or of Office 97; save it as {file.suffix} without a password")
    return BytesIO(content)


def _office_text(element: Any) -> str:
    """The text of an Office file's XML, those of tables and text boxes included, a line for each paragraph."""
    from lxml import etree

    etree.strip_elements(element, "{*}Fallback", with_tail=False)  # a text box again, for old programs
    lines = []
    for paragraph in element.iter("{*}p"):
        nodes = paragraph.iter("{*}t", "{*}tab", "{*}br")
        own = (node for node in nodes if next(node.iterancestors("{*}p")) is paragraph)  # not those of a text box in it
        lines.append("".join(node.text or " " for node in own))
    return "\n".join(line.strip() for line in lines if line.strip())


def _epub(file: Path) -> Content:
    from lxml import etree

    with zipfile.ZipFile(BytesIO(file.read_bytes())) as book:
        parser = etree.XMLParser(resolve_entities=False, no_network=True)
        container = etree.fromstring(book.read("META-INF/container.xml"), parser)
        package_file = container.find(".//{*}rootfile").get("full-path")
        package = etree.fromstring(book.read(package_file), parser)
        files = {item.get("id"): unquote(item.get("href")) for item in package.iter("{*}item")}
        spine = [files[item.get("idref")] for item in package.iter("{*}itemref") if item.get("idref") in files]
        locks = "META-INF/encryption.xml"
        encrypted = book.read(locks).decode() if locks in book.namelist() else ""
        if any(name in encrypted for name in spine):
            raise UnreadableFile("is encrypted; bring one without DRM")
        pages = (book.read(normpath(join(dirname(package_file), name))) for name in spine)
        chapters = [(f"chapter {number}", _html_text(_parsed_html(page))) for number, page in enumerate(pages, 1)]
    return Content(package.findtext(".//{*}title"), package.findtext(".//{*}language"), chapters)


PLAIN = (".txt", ".md")
READERS: dict[str, Callable[[Path], Content]] = {
    **dict.fromkeys(PLAIN, _plain),
    ".pdf": _pdf,
    **dict.fromkeys((".html", ".htm", ".xhtml"), _html),
    ".docx": _docx,
    ".pptx": _pptx,
    ".epub": _epub,
}
