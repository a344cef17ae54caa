"""Lines that were wrapped to a width become paragraphs again, since a line break ends a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ENDS = (".", "!", "?", ":", "。", "！", "？", "।", "؟", "۔", "…")
_CLOSING = "\"'”’»)]）」』"
# Where a line starts anew: items of lists, quotations, headings, speeches of a dialogue.
_STARTS = re.compile(r"\s*([-*+•·–—>#|]|\(?(\d{1,3}|\w)[.)])(\s|$)")
_KEPT = re.compile(r"\t|\S {3,}\S")  # a line of a table
_NO_SPACES = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uff00-\uffef"
_LEAST_WIDTH = 30  # of wrapped text, in characters; half of it in scripts whose characters are wide


def joint(line: str) -> str:
    """What stands between a line and the next one: nothing in scripts without spaces between words."""
    return "" if re.search(rf"[{_NO_SPACES}]$", line) else " "


def unwrapped(text: str, full: float = 0.85, least: float = 0.7) -> str:
    """The text with a line for each paragraph. Verse, lists, code and tables stay as they are; a word that is divided
    at the end of a line is put together.

    A line goes on in the next one if the first word of that would not have fitted into it. The width is that of the
    long lines; only a block of lines between blank ones of which most go on is wrapped text, and it is verse if all of
    its lines begin with a capital.

    Args:
        full: the part of the width that counts as full; less than 1 where characters have different widths.
        least: the part of a block's lines that go on; 0 if blank lines do not part blocks.

    >>> unwrapped("The Moon circles the Earth and shows us al-\\nways the same side, as everybody can\\nsee.")
    'The Moon circles the Earth and shows us always the same side, as everybody can see.'
    >>> unwrapped("Tiger, tiger\\nburning bright")
    'Tiger, tiger\\nburning bright'
    """
    blocks = [block.split("\n") for block in re.split(r"\n[^\S\n]*\n", text)]
    lengths = sorted(len(line.rstrip()) for block in blocks for line in block[:-1])
    width = lengths[-1 - len(lengths) // 20] if lengths else 0
    if width < (_LEAST_WIDTH // 2 if re.search(rf"[{_NO_SPACES}]", text) else _LEAST_WIDTH):
        return text
    return "\n\n".join("".join(_joined(block, full * width, least, text)) for block in blocks)


def _joined(lines: list[str], width: float, least: float, text: str) -> Iterator[str]:
    """The pieces of a block's text."""
    pairs = list(zip(lines, lines[1:]))  # noqa: RUF007
    goes_on = [_goes_on(line, following, width) for line, following in pairs]
    verse = least and len(lines) > 2 and all(line.lstrip("\"'“«»„( ")[:1].isupper() for line in lines)
    if verse or sum(goes_on) < least * len(pairs):
        yield "\n".join(lines)
        return
    for (line, following), full in zip(pairs, goes_on):
        line = line.strip()
        if not full or line.rstrip(_CLOSING).endswith(_ENDS):
            yield line + "\n"
        elif re.search(r"\w[-\xad\u2010]$", line) and re.match(r"\s*[^\W\d_]", following):
            yield _undivided(line, following, text)
        else:
            yield line + joint(line)
    yield lines[-1].strip()


def _goes_on(line: str, following: str, width: float) -> bool:
    word = following.split(maxsplit=1)[:1]
    if not word or _STARTS.match(following) or _KEPT.search(line) or _KEPT.search(following):
        return False
    needed = 1 if joint(line) == "" else 1 + len(word[0])
    return len(line.rstrip()) + needed >= width


def _undivided(line: str, following: str, text: str) -> str:
    """The line without its hyphen, unless the text has the word with a hyphen elsewhere, or it joins names."""
    first, second = re.split(r"\s", line)[-1][:-1], re.match(r"\s*(\w+)", following)[1]  # type: ignore[index]
    hyphen = line[-1] != "\xad" and (f"{first}-{second}" in text or second[0].isupper() or first[-1:].isdigit())
    return line if hyphen else line[:-1]
