"""The text of .doc, of Word 97 to 2003, by its table of pieces ([MS-DOC] 2.4.1), with foot- and endnotes and comments.

Of files in 15 languages kreuzberg reads 13 (Chinese and Japanese come out as other characters), sharepoint-to-text 6;
they and unword lose the notes.
"""

from __future__ import annotations

import re
from io import BytesIO
from struct import unpack_from

from hmde.documents.content import Content, UnreadableFile
from hmde.documents.encodings import decoded

_TABLE_1, _ENCRYPTED = 0x0200, 0x0100  # bits of the flags at byte 10
_COUNTS = 0x4C  # of characters, of the text, notes, headers, macros, comments, endnotes, boxes, boxes of headers
_HEADERS = (2, 3, 7)  # which of these are no part of the text
_PIECES = 0x1A2  # where the table of pieces lies, and its length
_FIELDS = re.compile("\x13[^\x13-\x15]*\x14([^\x13-\x15]*)\x15|\x13[^\x13-\x15]*\x15")  # the innermost: code and result
_MARKS = {"\r": "\n", "\v": "\n", "\f": "\n", "\x07": " ", "\x1e": "-"} | dict.fromkeys("\x01\x02\x03\x04\x05\x08\x1f")


def doc(content: bytes) -> Content:
    import olefile

    with olefile.OleFileIO(BytesIO(content)) as file:
        stream = file.openstream("WordDocument").read()
        version, flags = unpack_from("<H", stream, 2)[0], unpack_from("<H", stream, 10)[0]
        if flags & _ENCRYPTED:
            raise UnreadableFile("is encrypted; save it without its password", "encrypted")
        if version < 0xC1:
            raise UnreadableFile("is of Word 95 or older; save it as .docx", "of Word 95 or older")
        table = file.openstream("1Table" if flags & _TABLE_1 else "0Table").read()
        properties = file.get_metadata()
    text = _pieces(stream, table)
    kept, begin = [], 0
    for number, count in enumerate(unpack_from("<8i", stream, _COUNTS)):
        kept += [text[begin : begin + count]] if number not in _HEADERS else []
        begin += count
    title, _ = decoded(properties.title or b"", f"windows-{properties.codepage}")
    return Content(title, None, [("", _readable("\r".join(kept)))])


def _pieces(stream: bytes, table: bytes) -> str:
    """All characters of a document, those that no reader sees among them."""
    place, length = unpack_from("<2I", stream, _PIECES)
    pieces = table[place : place + length]
    while pieces[:1] == b"\x01":  # properties, in front of the pieces
        pieces = pieces[3 + unpack_from("<H", pieces, 1)[0] :]
    count = (unpack_from("<I", pieces, 1)[0] - 4) // 12
    ends = unpack_from(f"<{count + 1}I", pieces, 5)
    texts = []
    for number in range(count):
        size = ends[number + 1] - ends[number]
        begin = unpack_from("<I", pieces, 5 + 4 * (count + 1) + 8 * number + 2)[0]
        if begin & 0x40000000:
            begin = (begin & ~0x40000000) // 2
            texts.append(stream[begin : begin + size].decode("cp1252", "replace"))
        else:
            texts.append(stream[begin : begin + 2 * size].decode("utf-16-le", "surrogatepass"))
    return "".join(texts)


def _readable(text: str) -> str:
    """
    >>> _readable("See \\x13 HYPERLINK x \\x14there\\x15.\\rAnn\\x0730\\x07\\x07Bob\\x0741\\x07\\x07")
    'See there.\\nAnn 30\\nBob 41'
    """
    before = None
    while before != text:
        before, text = text, _FIELDS.sub(lambda field: field[1] or "", text)
    lines = text.replace("\x07\x07", "\r").translate(str.maketrans(_MARKS)).splitlines()
    return "\n".join(line.strip() for line in lines if line.strip())
