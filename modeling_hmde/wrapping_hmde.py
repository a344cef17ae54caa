"""Line breaks that only wrap a text to a width, and end no sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

ENDS = (".", "!", "?", ":", "。", "！", "？", "।", "؟", "۔", "…")
CLOSING = "\"'”’»)]）」』”"
# Where a line starts anew: items of lists, quotations, headings, speeches of a dialogue.
_STARTS = re.compile(r"\s*([-*+•·–—>#|]|\(?(\d{1,3}|\w)[.)])(\s|$)")
_COLUMNS = re.compile(r"   (?<=\S   ) *\S")  # of a table; three spaces first, because these are found fast
_BLOCK = re.compile(r"[^\n]*\S[^\n]*(?:\n[^\n]*\S[^\n]*)*")  # lines between blank ones
_NO_SPACES = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]")
_LEAST_WIDTH = 30  # of wrapped text, in characters; half of it in scripts whose characters are wide


def joint(line: str) -> str:
    """What stands between a line and the next one: nothing in scripts without spaces between words."""
    return "" if _NO_SPACES.match(line[-1:]) else " "


def wrapping_breaks(text: str, full: float = 0.85, least: float = 0.7) -> Iterator[int]:
    """The places of the line breaks ("\\n") of a text that only wrap it. Verse, lists, code and tables have none.

    A line goes on in the next one if the first word of that would not have fitted into it. The width is that of the
    long lines; only a block of lines between blank ones of which most go on is wrapped text, and it is verse or a table
    if all of its lines begin with a capital or a digit.

    Args:
        full: the part of the width that counts as full; less than 1 where characters have different widths.
        least: the part of a block's lines that go on; 0 if blank lines do not part blocks.

    >>> list(wrapping_breaks("The Moon circles the Earth and shows us\\nthe same side, as everybody can\\nsee."))
    [39, 71]
    """
    lengths = sorted(len(line.rstrip()) for line, following in pairwise(text.split("\n")) if following.strip())
    width = lengths[-1 - len(lengths) // 20] if lengths else 0
    if width < _LEAST_WIDTH and (width < _LEAST_WIDTH // 2 or not _NO_SPACES.search(text)):
        return
    for block in _BLOCK.finditer(text):
        lines = block[0].split("\n")
        goes_on = [_goes_on(line, following, full * width) for line, following in pairwise(lines)]
        begins = [line.lstrip("\"'“«»„‘( ")[:1] for line in lines]
        verse = least and len(lines) > 2 and all(first.isupper() or first.isdigit() for first in begins)
        if verse or sum(goes_on) < least * len(goes_on):
            continue
        place = block.start() - 1
        for line, full_line in zip(lines, goes_on):
            place += len(line) + 1
            if full_line and not line.strip().rstrip(CLOSING).endswith(ENDS):
                yield place


def _goes_on(line: str, following: str, width: float) -> bool:
    word = following.split(maxsplit=1)[:1]
    length = len(line.rstrip()) + 1
    if not word or length + len(word[0]) < width or (length < width and not joint(line)):
        return False
    both = f"{line}\n{following}"
    return not (_STARTS.match(following) or "\t" in both or _COLUMNS.search(both))
