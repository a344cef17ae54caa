"""Office files and books: DOCX and PPTX, also Strict, ODT and ODP, EPUB by lxml; the rest by kreuzberg.

What python-docx, python-pptx, mammoth, markitdown and kreuzberg leave out or say twice is read here from the XML: foot-
and endnotes, comments, notes of speakers, charts and diagrams; not hidden text, placeholders and where a text was moved
from. kreuzberg reads old and open formats that the others refuse (of 12 kinds 11, markitdown 5).
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from io import BytesIO
from itertools import groupby
from posixpath import basename, dirname, join, normpath
from typing import Any
from urllib.parse import unquote

from hmde.documents.content import Content, Section, UnreadableFile
from hmde.documents.html import html
from hmde.documents.word97 import doc

OTHER_KINDS = {  # by their endings, with their media types
    ".ppt": "application/vnd.ms-powerpoint",
    ".xls": "application/vnd.ms-excel",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".ods": "application/vnd.oasis.opendocument.spreadsheet",
    ".rtf": "application/rtf",
    ".msg": "application/vnd.ms-outlook",
    ".json": "application/json",
    ".ipynb": "application/x-ipynb+json",
    ".org": "text/x-org",
    ".fb2": "application/x-fictionbook+xml",
}
_OLE = b"\xd0\xcf\x11\xe0"  # begins an encrypted Office file, and one of Office 97
_UNTITLED = ("Word Document", "PowerPoint Presentation")  # what stands where nobody has given a title
# Elements of which nobody reads the text: deleted, moved from here, of a text box for old programs, of ruby, of fields,
# hidden, or in place of what nobody has filled in.
_UNREAD = """//*[local-name()="Fallback" or local-name()="moveFrom" or local-name()="del" or local-name()="rt"]
    | //*[local-name()="fld" and (@type="slidenum" or starts-with(@type, "datetime"))]
    | //*[local-name()="r"][*[local-name()="rPr"]/*[local-name()="vanish"]
        [not(@*[local-name()="val" and (.="0" or .="false" or .="off")])]]
    | //*[local-name()="sdt"][*[local-name()="sdtPr"]/*[local-name()="showingPlcHdr"]]
    | //*[local-name()="tracked-changes" or local-name()="note-citation"
        or local-name()="page-number"]"""
# Parts that belong to a document or slide, by the last word of their relation's type.
_RELATED = ("footnotes", "endnotes", "comments", "notesSlide", "chart", "chartEx", "diagramData")
_TEXT = {"t", "tab", "br", "cr", "noBreakHyphen"}
_TEXT_OF_ODF = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
_INSTEAD = {"noBreakHyphen": "-", "line-break": " ", "s": " ", "tab": " ", "br": " ", "cr": " "}


class Package:
    """The files of a zipped document."""

    def __init__(self, content: bytes) -> None:
        if content.startswith(_OLE):
            raise UnreadableFile("is encrypted, or of Office 97; save it without a password", "encrypted")
        self.archive = zipfile.ZipFile(BytesIO(content))

    def parsed(self, name: str) -> Any:
        """
        Raises:
            KeyError: there is no such file.
        """
        from lxml import etree

        parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
        return etree.fromstring(self.archive.read(name), parser)

    def related(self, name: str) -> dict[str, tuple[str, str]]:
        """The type's last word and the name of each file that a file refers to, by the id of the relation."""
        relations = join(dirname(name), "_rels", f"{basename(name)}.rels")
        if relations not in self.archive.namelist():
            return {}
        found = self.parsed(relations).iter("{*}Relationship")
        places = ((entry, normpath(join("/", dirname(name), entry.get("Target")))) for entry in found)
        return {entry.get("Id"): (basename(entry.get("Type")), place.lstrip("/")) for entry, place in places}

    def main(self) -> str:
        """The file with the text."""
        names = [name for kind, name in self.related("").values() if kind == "officeDocument"]
        if not names:
            raise UnreadableFile("is damaged (it holds no document); download or copy it again", "damaged")
        return names[0]

    def properties(self, name: str) -> tuple[str | None, str | None]:
        """Title and language."""
        if name not in self.archive.namelist():
            return None, None
        root = self.parsed(name)
        title, language = root.findtext(".//{*}title"), root.findtext(".//{*}language")
        return None if title in _UNTITLED else title, language

    def lines(self, name: str) -> str:
        """The text of a part and of the parts that belong to it."""
        own = (place for kind, place in self.related(name).values() if kind in _RELATED)
        parts = [name, *sorted(own)]
        return "\n".join("\n".join(_lines(self.parsed(part))) for part in parts if part in self.archive.namelist())


def docx(content: bytes) -> Content:
    package = Package(content)
    main = package.main()
    text = [("", package.lines(main))]
    return Content(*package.properties("docProps/core.xml"), text, headings=_headings(package, main))


def _headings(package: Package, main: str) -> frozenset[str]:
    """The paragraphs whose style Word names heading, as it does in all languages."""
    styles = [name for kind, name in package.related(main).values() if kind == "styles"]
    named = (style for name in styles for style in package.parsed(name).iter("{*}style"))
    own = [style for style in named if _value(style, "name").lower().startswith("heading")]
    ids = {style.xpath("string(@*[local-name()='styleId'])") for style in own}
    paragraphs = package.parsed(main).iterfind(".//{*}p[{*}pPr]")
    return frozenset(_line(each) for each in paragraphs if _value(each.find("{*}pPr"), "pStyle") in ids)


def _value(element: Any, name: str) -> str:
    """The `val` of a child of this name; empty if there is none."""
    return element.xpath(f"string(*[local-name()='{name}']/@*[local-name()='val'])")


def old_word(content: bytes) -> Content:
    """What is named .doc: of Word 97 to 2003, or what programs write under this name."""
    if content.startswith(_OLE):
        return doc(content)
    if content.lstrip().startswith(b"{\\rtf"):
        return other(OTHER_KINDS[".rtf"], content)
    return docx(content) if content.startswith(b"PK") else html(content)


def pptx(content: bytes) -> Content:
    package = Package(content)
    main = package.main()
    places = package.related(main)
    ids = (value for slide in package.parsed(main).iter("{*}sldId") for value in slide.attrib.values())
    slides = [places[id][1] for id in ids if id in places]
    sections = [(f"slide {number}", package.lines(slide)) for number, slide in enumerate(slides, 1)]
    return Content(*package.properties("docProps/core.xml"), sections)


def open_document(content: bytes) -> Content:
    """ODT and ODP."""
    package = Package(content)
    if any(True for _ in package.parsed("META-INF/manifest.xml").iter("{*}encryption-data")):
        raise UnreadableFile("is encrypted; save it without its password", "encrypted")
    root = package.parsed("content.xml")
    hidden = {style.getparent().get(_STYLE + "name") for style in root.iterfind(f".//*[@{_TEXT_OF_ODF}display='none']")}
    for span in root.iter("{*}span"):
        if span.get(_TEXT_OF_ODF + "style-name") in hidden:
            span.clear(keep_tail=True)
    slides = list(root.iterfind(".//{*}presentation/{*}page"))
    sections = [(f"slide {number}", "\n".join(_lines(slide))) for number, slide in enumerate(slides, 1)]
    headings = frozenset(map(_line, root.iter("{*}h")))
    sections = sections or [("", "\n".join(_lines(root)))]
    return Content(*package.properties("meta.xml"), sections, headings=headings)


def _lines(root: Any) -> Iterator[str]:
    """The lines of an Office file's XML: a paragraph, a row of a table, or a value of a chart."""
    for element in root.xpath(_UNREAD):
        element.clear(keep_tail=True)
    paragraphs = root.iter("{*}p", "{*}h", "{*}strCache")
    for _, cells in groupby(paragraphs, key=_place):
        line = " ".join(filter(None, map(_line, cells)))
        if line:
            yield line


def _place(paragraph: Any) -> Any:
    """The outermost row of a table in which a paragraph lies, or else itself."""
    return next(reversed(list(paragraph.iterancestors("{*}tr", "{*}table-row"))), paragraph)


def _line(paragraph: Any) -> str:
    return " ".join(_text(paragraph).split())


def _text(paragraph: Any) -> str:
    """The text of a paragraph, without that of others in it, such as those of a text box or of a note."""
    from lxml import etree

    if etree.QName(paragraph).localname == "strCache":
        return " ".join(value.text or "" for value in paragraph.iter("{*}v"))
    whole = "opendocument" in paragraph.tag  # where text stands in the paragraph itself
    pieces = []
    for node in paragraph.iter("*"):
        name = etree.QName(node).localname
        own = node is paragraph or (name not in "ph" and next(node.iterancestors("{*}p", "{*}h")) is paragraph)
        if own and (whole or name in _TEXT):
            pieces += [_INSTEAD.get(name, ""), node.text or ""]
        if own and whole and node is not paragraph:
            pieces.append(node.tail or "")
    return "".join(pieces)


def epub(content: bytes) -> Content:
    book = Package(content)
    package_file = book.parsed("META-INF/container.xml").find(".//{*}rootfile").get("full-path")
    package = book.parsed(package_file)
    items = {item.get("id"): item for item in package.iter("{*}item")}
    spine = [items[item.get("idref")] for item in package.iter("{*}itemref") if item.get("idref") in items]
    hrefs = [unquote(item.get("href")) for item in spine if "image" not in (item.get("media-type") or "")]
    names = book.archive.namelist()
    locks = "META-INF/encryption.xml"
    encrypted = book.archive.read(locks).decode() if locks in names else ""
    if any(name in encrypted for name in hrefs):
        raise UnreadableFile("is encrypted; bring one without DRM", "encrypted")
    places = [normpath(join(dirname(package_file), name)) for name in hrefs]
    lost = [name for name in places if name not in names]
    pages = {number: html(book.archive.read(place), True) for number, place in enumerate(places, 1) if place in names}
    chapters: list[Section] = [(f"chapter {number}", page.sections[0][1]) for number, page in pages.items()]
    headings = frozenset().union(*(page.headings for page in pages.values()))
    notes = (f"lacks chapters that it lists: {', '.join(lost)}; bring a whole one",) if lost else ()
    return Content(package.findtext(".//{*}title"), package.findtext(".//{*}language"), chapters, notes, headings)


def other(media_type: str, content: bytes) -> Content:
    """A file of a kind that kreuzberg reads."""
    import kreuzberg

    settings = kreuzberg.ExtractionConfig(use_cache=False)
    content = (
        content.replace(rb"{\*\footnote", b"{") if media_type == OTHER_KINDS[".rtf"] else content
    )  # it skips notes
    try:
        found = kreuzberg.extract_bytes_sync(content, media_type, settings)
    except BaseException as error:  # of Rust, on some damaged files: a PanicException, which is no Exception
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(error) from None
    text = re.sub(r"\[\^\d+\]", "", found.content)  # the numbers of notes
    lines = (" ".join(line.split()) for line in text.splitlines())
    metadata: dict[str, Any] = {**found.metadata}
    title, language = metadata.get("title"), metadata.get("language")
    return Content(title, language, [("", "\n".join(line for line in lines if line))])
