"""What all readers of files give, and how they refuse."""

from __future__ import annotations

from typing import NamedTuple

Section = tuple[str, str]  # its place, such as "page 3", empty for the whole file; and its text


class UnreadableFile(ValueError):
    """A file is damaged or encrypted, holds no text, or needs a library that is not installed.

    Args:
        message: what is wrong, and the way out; goes on behind the file's name.
        reason: the same in a word or two, by which files are counted.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Content(NamedTuple):
    """What a file holds."""

    title: str | None
    """As the file names it; None if it names none."""
    language: str | None
    """As the file names it; None if it names none."""
    sections: list[Section]
    notes: tuple[str, ...] = ()
    """What was guessed, or could not be read; each goes on behind the file's name."""
    headings: frozenset[str] = frozenset()
    """Lines of the text that are headings."""
