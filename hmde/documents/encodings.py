"""Bytes of texts in any encoding become text.

Labels are those of the WHATWG, as browsers know them. Without one, uchardet (in resiliparse) finds the encoding out:
right for 17 of 19 texts of one sentence in 19 languages, charset-normalizer for 12. That is asked where uchardet knows
none, and for UTF-16 and UTF-32 without a mark, of which it finds 5 of 5 and uchardet none.
"""

from __future__ import annotations

import codecs

from hmde.documents.content import UnreadableFile

_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # begins with UTF-16's
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Codecs of Python that know all characters which browsers read under these names.
_WIDER = {"gbk": "gb18030", "shift_jis": "cp932", "euc-kr": "cp949", "big5": "big5hkscs"}


def decoded(content: bytes, label: str | None = None) -> tuple[str, tuple[str, ...]]:
    """The text of a file with line feeds at the ends of its lines, and what was guessed to read it.

    Args:
        label: the encoding that the file names. UTF-8, which no other encoding looks like, needs no label.

    Raises:
        UnreadableFile: it is no text.
    """
    marked = next((encoding for mark, encoding in _MARKS.items() if content.startswith(mark)), None)
    notes: tuple[str, ...] = ()
    if marked:
        text = content.decode(marked, "replace").removeprefix("\ufeff")
    else:
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            text = ""
        if not text or "\0" in text:  # UTF-16 without a mark is also UTF-8, of which each other character is NUL
            encoding = _labelled(label) or _detected(content)
            text = content.decode(encoding, "replace")
            if _labelled(label) is None and content:
                notes = (f"names no encoding; it is read as {encoding}, which is a guess",)
    lost = text.count("\ufffd") - content.count("\ufffd".encode())
    if lost > 0:
        notes += (f"holds {lost} bytes that are no text; they are read as \ufffd",)
    if "\0" in text:
        raise UnreadableFile("is no text, although its name says so; rename it, or remove it", "no text")
    return text.replace("\r\n", "\n").replace("\r", "\n"), notes


def _labelled(label: str | None) -> str | None:
    """Python's codec for a label; None if there is none, or if it says UTF-16, which no page that names it is in.

    >>> [_labelled(label) for label in ("x-sjis", "GB2312", "latin1", "utf-16", "nothing")]
    ['cp932', 'gb18030', 'cp1252', None, None]
    """
    import webencodings

    found = webencodings.lookup(label) if label else None
    if found is None or found.name.startswith("utf-16"):
        return None
    return _WIDER.get(found.name, found.codec_info.name)


def _detected(content: bytes) -> str:
    """
    >>> texts = ("caf\u00e9, na\u00efve", "\u041b\u0443\u043d\u0430 \u043d\u0430\u0434 \u0440\u0435\u043a\u043e\u0439")
    >>> [_detected(text.encode(encoding)) for text, encoding in zip(texts, ("cp1252", "cp1251"))]
    ['cp1252', 'cp1251']

    Raises:
        UnreadableFile: no encoding has these bytes.
    """
    import charset_normalizer
    from resiliparse.parse.encoding import detect_encoding

    found = detect_encoding(content) if b"\0" not in content else "utf-8"  # which it says where it knows none
    if found and found != "utf-8":
        return found
    if b"\0" not in content and len(content.decode("ascii", "ignore")) > 0.7 * len(content):
        return "cp1252"  # a few bytes beside ASCII, as in a short text of Western Europe
    best = charset_normalizer.from_bytes(content).best()
    if best is None:
        raise UnreadableFile("is no text in any known encoding; save it as UTF-8, or remove it", "no text")
    return best.encoding
