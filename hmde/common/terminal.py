"""Import this first. From then on, what a command says is safe for the terminal when it warns, fails or is stopped: it
has no control characters and no very long lines. It may name files, columns and ids, which others have chosen."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import traceback
from types import TracebackType

MOST_CHARACTERS = 2000  # of one line


def printable(text: str) -> str:
    r"""One line of text that is safe in any terminal: white space becomes blanks, and control characters and lone
    surrogates become escapes. The middle of a very long text is left out.

    >>> printable("a\x1b[2J\tb\x9b2J")
    'a\\x1b[2J b\\x9b2J'
    """
    if len(text) > MOST_CHARACTERS:
        text = f"{text[: MOST_CHARACTERS // 2]} [...] {text[-MOST_CHARACTERS // 2 :]}"
    one_line = re.sub(r"[\t\n\r]+", " ", text)
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", lambda match: ascii(match[0])[1:-1], one_line)


def open_closed_streams() -> None:
    """A stream that was closed before the program began leads nowhere. Else the next file that is opened would take its
    number, and get what libraries print."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # in the order of their numbers
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _show_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not _is_interrupt(error):
        for part in traceback.format_exception(kind, error, trace):
            print(*map(printable, part.splitlines()), sep="\n", file=sys.stderr)
        return
    print("stopped by SIGINT", file=sys.stderr, flush=True)
    if not issubclass(kind, KeyboardInterrupt):  # whose exit code Python takes care of
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether an interrupt caused the error: an import that is interrupted may raise another error in its place."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


open_closed_streams()
sys.excepthook = _show_uncaught
if logging.lastResort is not None:
    logging.lastResort.setFormatter(_OneLine())  # of all loggers that nobody has configured
