"""The table of readers: which kinds of files are read, and by what.

The libraries are those of the extras `search` and `files`, imported when the first such file is read. Each reader
was chosen by measurement; its module says among which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from hmde.common.extras import MissingExtra, missing_extras_named
from hmde.documents.content import Content, Section, UnreadableFile
from hmde.documents.html import html
from hmde.documents.office import OTHER_KINDS, docx, epub, old_word, open_document, other, pptx
from hmde.documents.pdf import pdf
from hmde.documents.plain import cells, mail, markdown, plain, subtitles, xml

LONGEST = 30_000  # characters of a document; a longer one is read in parts, so that all of it is read and found

READERS: dict[str, Callable[[bytes], Content]] = {
    **dict.fromkeys((".txt", ".text", ".log", ".rst", ".adoc", ".tex"), plain),
    **dict.fromkeys((".md", ".markdown"), markdown),
    **dict.fromkeys((".srt", ".vtt"), subtitles),
    **dict.fromkeys((".csv", ".tsv"), cells),
    ".xml": xml,
    ".eml": mail,
    **dict.fromkeys((".html", ".htm", ".xhtml"), html),
    ".pdf": pdf,
    **dict.fromkeys((".docx", ".docm", ".dotx"), docx),
    **dict.fromkeys((".pptx", ".pptm", ".ppsx"), pptx),
    **dict.fromkeys((".odt", ".odp"), open_document),
    ".epub": epub,
    ".doc": old_word,
    **{ending: partial(other, media_type) for ending, media_type in OTHER_KINDS.items()},
}
_NO_TEXT = {
    ".pdf": "if it is scanned, recognise its text first: ocrmypdf SCANNED.pdf READABLE.pdf",
    ".epub": "if it is scanned, recognise its text first",
}


def read_file(file: Path) -> Content:
    """
    Raises:
        UnreadableFile: names the file and what is wrong with it.
    """
    ending = file.suffix.lower()
    try:
        with missing_extras_named():
            content = READERS[ending](file.read_bytes())
    except UnreadableFile as error:
        raise UnreadableFile(f"{file} {error}", error.reason) from None
    except MissingExtra as error:
        raise UnreadableFile(f"{file} cannot be read: {error}", "a library is missing") from None
    except OSError as error:
        raise UnreadableFile(f"{file} cannot be read: {error.strerror or error}", "cannot be read") from None
    except Exception as error:  # on damaged files, the libraries raise errors of all kinds
        raise UnreadableFile(f"{file} is damaged ({error}); download or copy it again", "damaged") from error
    sections = [(place, text) for place, text in content.sections if text.strip()]
    if not sections:
        way_out = _NO_TEXT.get(ending, "write some, or remove the file")
        raise UnreadableFile(f"{file} holds no text; {way_out}", "no text")
    parts = [part for section in sections for part in _parts(section, content.headings)]
    return content._replace(title=(content.title or "").strip() or None, sections=parts)


def _parts(section: Section, headings: frozenset[str]) -> list[Section]:
    """A section, or its parts of at most LONGEST characters: as few chapters or paragraphs a part as need be."""
    place, text = section
    if len(text) <= LONGEST:
        return [section]
    prefix = f"{place} " if place else ""
    return [(f"{prefix}part {number}", part) for number, part in enumerate(_divided(text, headings), 1)]


def _divided(text: str, headings: frozenset[str]) -> Iterator[str]:
    """A text cut in front of headings, where they leave parts of more than a fourth of LONGEST, and else at the ends of
    lines; a line that is longer than LONGEST at its last space, if it has one."""
    part = ""
    for line in text.splitlines(keepends=True):
        full = len(part) + len(line) > LONGEST
        if part and (full or (line.strip() in headings and len(part) > LONGEST // 4)):
            yield part.rstrip("\n")
            part = ""
        part += line
        while len(part) > LONGEST:
            end = part.rfind(" ", LONGEST // 2, LONGEST) + 1 or LONGEST
            yield part[:end].rstrip()
            part = part[end:]
    if part.strip():
        yield part.rstrip("\n")
