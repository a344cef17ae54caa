"""Plain text, Markdown, subtitles, mail, tables of cells, and XML of any kind."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from html import escape
from typing import Any

from hmde.documents.content import Content, UnreadableFile
from hmde.documents.encodings import decoded
from hmde.documents.html import html, parsed_html
from hmde.documents.wrapping import unwrapped

_FRONT_MATTER = re.compile(r"---[^\S\n]*\n(.*?\n)(?:---|\.\.\.)[^\S\n]*(?:\n|$)", re.S)
# Tags behind which a browser would read the rest of the page as no text.
_SWALLOWING = re.compile(r"<(?=/?(title|textarea|style|xmp|iframe|noembed|noframes|script|plaintext)\b)", re.I)
_APART = re.compile(r"\n[^\S\n]*\n[^\S\n]*\n([^\n]{,80}[^.,;:!?\n])\n[^\S\n]*(?=\n)")
_TIMES = re.compile(r"(\d+:)?\d+:\d\d[.,]\d{3} --> .*")


def plain(content: bytes) -> Content:
    """A line of its own after two blank ones or more, as books have before a chapter, is a heading."""
    text, notes = decoded(content)
    headings = frozenset(heading.strip() for heading in _APART.findall(text))
    return Content(None, None, [("", unwrapped(text))], notes, headings)


def markdown(content: bytes) -> Content:
    """By CommonMark, with tables: what a reader of the page sees. Title and language are those of the front matter."""
    import yaml
    from markdown_it import MarkdownIt

    text, notes = decoded(content)
    front, matter = _FRONT_MATTER.match(text), {}
    if front:
        try:
            matter = yaml.safe_load(front[1])
        except yaml.YAMLError as error:
            front, notes = None, (*notes, f"begins with no YAML, which is read as text ({str(error).splitlines()[0]})")
    matter = matter if isinstance(matter, dict) else {}
    rendered = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text[front.end() if front else 0 :])
    page = parsed_html(_SWALLOWING.sub("&lt;", rendered), whole=True)
    title, language = (matter.get("title"), matter.get("lang") or matter.get("language"))
    return page._replace(title=str(title or page.title or ""), language=str(language or "") or None, notes=notes)


def subtitles(content: bytes) -> Content:
    """What is said, without numbers and times, a line for each sentence."""
    from modeling_hmde.wrapping_hmde import joint  # takes seconds; --help needs it not

    text, notes = decoded(content)
    cues = re.split(r"\n\s*\n", text.removeprefix("WEBVTT"))
    lines = []
    for cue in cues:
        times = _TIMES.search(cue)
        said = re.sub(r"<[^>]*>|\{\\[^}]*\}", "", cue[times.end() :]) if times else ""
        lines += [line.strip() for line in said.splitlines() if line.strip()]
    ends = (".", "!", "?", "。", "！", "？", "…", '"', "”", "»", "♪")
    pieces = [line + ("\n" if line.endswith(ends) else joint(line)) for line in lines]
    return Content(None, None, [("", "".join(pieces).strip())], notes)


def cells(content: bytes) -> Content:
    """A table whose cells are parted by commas, semicolons or tabs, a line for each row."""
    text, notes = decoded(content)
    try:
        dialect: Any = csv.Sniffer().sniff(text[:65_536], ",;\t|")
    except csv.Error:
        dialect = csv.excel
    csv.field_size_limit(max(len(text), 131_072))
    rows = csv.reader(text.splitlines(keepends=True), dialect)
    lines = (", ".join(" ".join(cell.split()) for cell in row if cell.strip()) for row in rows)
    return Content(None, None, [("", "\n".join(filter(None, lines)))], notes)


def xml(content: bytes) -> Content:
    """The text of all elements; an element with text of its own is a line, with all that is in it."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities="internal", no_network=True)  # its limits hold entities small
    root = etree.fromstring(content, parser)
    lines = (" ".join("".join(element.itertext(etree.Element, etree.Entity)).split()) for element in _outermost(root))
    language = root.get("{http://www.w3.org/XML/1998/namespace}lang")
    return Content(None, language, [("", "\n".join(filter(None, lines)))])


def _outermost(root: Any) -> Iterator[Any]:
    """The elements with text of their own, without those that lie in one of these."""
    waiting = [root]
    while waiting:
        element = waiting.pop()
        own = (element.text, *(child.tail for child in element))
        if any(text and text.strip() for text in own):
            yield element
        else:
            waiting += [child for child in reversed(element) if isinstance(child.tag, str)]


def mail(content: bytes) -> Content:
    """The subject, and the text as the writer wrote it, or else as its HTML shows it; then the files that came with it
    whose kind is read."""
    from email import message_from_bytes, policy

    message = message_from_bytes(content, policy=policy.default)
    subject = str(message["subject"] or "")
    if not message.keys():
        raise UnreadableFile("is no mail (it has no header); save it again", "damaged")
    body = message.get_body(("plain", "html"))
    text = ""
    if body is not None:
        payload: Any = body.get_payload(decode=True) or b""
        charset = body.get_content_charset() or ""
        if body.get_content_type() == "text/html":
            meta = f'<meta charset="{escape(charset)}">'.encode() if charset else b""
            text = html(meta + payload, whole=True).sections[0][1]
        else:
            text = unwrapped(decoded(payload, charset)[0])
    names = [part.get_filename() or part.get_content_type() for part in message.iter_attachments()]
    notes = (f"came with files that are not read: {', '.join(names)}; save them beside it",) if names else ()
    return Content(subject, None, [("", f"{subject}\n{text}")], notes)
