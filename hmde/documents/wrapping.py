"""Lines that were wrapped to a width become paragraphs again, and words that were divided become whole."""

from __future__ import annotations

import re

_INDENTED = re.compile(r"\s*")


def unwrapped(text: str, full: float = 0.85, least: float = 0.7) -> str:
    """The text with a line for each paragraph. Verse, lists, code and tables stay as they are; a word that is divided
    at the end of a line is put together. Arguments as of `wrapping_breaks`.

    >>> unwrapped("The Moon circles the Earth and shows us al-\\nways the same side, as everybody can\\nsee.")
    'The Moon circles the Earth and shows us always the same side, as everybody can see.'
    >>> unwrapped("Tiger, tiger\\nburning bright")
    'Tiger, tiger\\nburning bright'
    """
    from modeling_hmde.wrapping_hmde import joint, wrapping_breaks  # takes seconds; --help needs it not

    pieces, begin = [], 0
    for place in wrapping_breaks(text, full, least):
        line, following = text[begin:place].rstrip(), text[place + 1 : place + 100].lstrip()
        divided = re.search(r"\w[-\xad\u2010]$", line) and re.match(r"[^\W\d_]", following)
        pieces.append(_undivided(line, following, text) if divided else line + joint(line))
        begin = _INDENTED.match(text, place + 1).end()  # type: ignore[union-attr]
    return "".join([*pieces, text[begin:]])


def _undivided(line: str, following: str, text: str) -> str:
    """The line without its hyphen, unless the text has the word with a hyphen elsewhere, or it joins names."""
    first, second = re.split(r"\s", line)[-1][:-1], re.match(r"\w+", following)[0]  # type: ignore[index]
    hyphen = line[-1] != "\xad" and (f"{first}-{second}" in text or second[0].isupper() or first[-1:].isdigit())
    return line if hyphen else line[:-1]
