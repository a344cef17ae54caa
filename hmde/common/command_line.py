"""The command line of every program. Options are the fields of a dataclass, filled from YAML (`--config FILE`) and
`--key value`. A user's mistake becomes one line on stderr and exit code 2, and a signal one line and its own code."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from argparse import ArgumentError
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import auto_cli, set_parsing_settings

from hmde.common.extras import MissingExtra

# Errors that an option, an input or the machine causes. Training raises the last at a loss that is not finite.
MISTAKES = (ValueError, TypeError, OSError, MemoryError, FloatingPointError, MissingExtra)

MOST_CHARACTERS = 2000  # of one line

# What an error says of the types of an option that may be of several, or not given.
_TYPES = re.compile(
    r"Does not validate against any of the Union subtypes.*?Errors:\s+|- Expected a <class 'NoneType'>\s+"
    r"|Given value type: [^\n]*\s+",
    re.DOTALL,
)

set_parsing_settings(docstring_parse_attribute_docstrings=True)  # --help shows the sentence under each field


def options_from(dataclass: Any, argv: list[str] | None = None, *, positional: bool = False, **texts: Any) -> Any:
    """The options of a command.

    Args:
        dataclass: its fields are the options, its docstring is the text of `--help`. For a command with subcommands, a
            dictionary {name of the subcommand: dataclass}.
        argv: the command line without the program's name; that of this process if not given.
        positional: whether fields without a default are positional arguments.
        texts: `prog` and `description` of `--help`, where those of the dataclass do not serve.

    Returns:
        an instance of the dataclass; with subcommands, of the dataclass of the one that was given.

    Raises:
        ValueError: an option is unknown, missing or of another type.
    """
    argv = sys.argv[1:] if argv is None else argv
    try:
        options = _plain(auto_cli(dataclass, args=argv, as_positional=positional, exit_on_error=False, **texts))
    except ArgumentError as error:
        raise ValueError(_TYPES.sub("", str(error))) from None
    _check_empty_sections(argv, options)
    return options


def _plain(value: Any) -> Any:
    """Options with plain numbers in place of those of `hmde.common.numbers`, which YAML cannot write. In place."""
    if is_dataclass(value):
        for field in fields(value):
            object.__setattr__(value, field.name, _plain(getattr(value, field.name)))
    elif isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    elif isinstance(value, list):
        return [_plain(item) for item in value]
    elif isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >= 2**63:  # libraries raise errors of many kinds, which name no option
            raise ValueError(f"an option is {value}, which does not fit into 64 bits; give a smaller number")
        return int(value)
    elif isinstance(value, float):
        return float(value)
    return value


def _check_empty_sections(argv: list[str], options: Any) -> None:
    """
    Raises:
        ValueError: a configuration file has an empty section that is no option, such as `{losses: {querys: {}}}`, which
            jsonargparse takes for nothing.
    """
    files = [value.removeprefix("--config=") for value in argv if value.startswith("--config=")]
    files += [value for option, value in pairwise(argv) if option == "--config"]
    for file in files:
        sections = [("", yaml.safe_load(Path(file).read_text(encoding="utf-8")), options)]
        for name, section, filled in sections:
            for key, value in section.items() if is_dataclass(filled) and isinstance(section, dict) else ():
                if not hasattr(filled, key):
                    raise ValueError(f"{file}: {name}{key} is no option; see --help for those that there are")
                sections.append((f"{name}{key}.", value, getattr(filled, key)))


def printable(text: str) -> str:
    r"""One line of text that is safe in any terminal, though others have chosen its names: white space becomes blanks,
    and control characters and lone surrogates become escapes. The middle of a very long text is left out.

    >>> printable("a\x1b[2J\tb\x9b2J")
    'a\\x1b[2J b\\x9b2J'
    """
    if len(text) > MOST_CHARACTERS:
        text = f"{text[: MOST_CHARACTERS // 2]} [...] {text[-MOST_CHARACTERS // 2 :]}"
    one_line = re.sub(r"[\t\n\r]+", " ", text)
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", lambda match: ascii(match[0])[1:-1], one_line)


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def run(main: Callable[[], None]) -> None:
    """Run a program, in the main thread. One of `MISTAKES` becomes one line on stderr and exit code 2. SIGINT and
    SIGTERM become one line and the codes that a shell gives them, 130 and 143; whatever is half written is removed on
    the way. With HMDE_TRACEBACK set, an error ends in a traceback, as errors of other kinds do."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_OneLine())  # of all loggers that nobody has configured
    program, received = os.getpid(), list[signal.Signals]()

    def stop(number: int, _frame: object) -> None:
        if os.getpid() != program:  # a process that was forked, which its parent ends
            os._exit(128 + number)
        received.append(signal.Signals(number))
        raise KeyboardInterrupt

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # by a shell, for what it starts behind itself
    stopping = [signal.SIGTERM] if ignored else [signal.SIGINT, signal.SIGTERM]
    before = {number: signal.signal(number, stop) for number in stopping}
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads, such as `head`, has read enough
        _write_no_more()
        sys.exit(128 + signal.SIGPIPE)
    except (Exception, KeyboardInterrupt) as error:
        if received:  # some libraries, such as DuckDB, turn the interrupt into an error of their own
            _end(f"stopped by {received[-1].name}", 128 + received[-1])
        if os.environ.get("HMDE_TRACEBACK") or not isinstance(error, MISTAKES):
            raise
        _end(f"error: {error or 'there is not enough memory'}", 2)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(line: str, code: int) -> None:
    print(printable(line), file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # a full disk
        _write_no_more()
    sys.exit(code)


def _write_no_more() -> None:
    """What stdout still holds goes nowhere, or Python would fail to write it once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
