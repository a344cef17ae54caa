"""The command line of every program. Options are the fields of a dataclass, filled from YAML (`--config FILE`) and
`--key value`. A user's mistake becomes one line on stderr and exit code 2."""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentError
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from jsonargparse import auto_cli, set_parsing_settings

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
    try:
        return plain(auto_cli(dataclass, args=argv, as_positional=positional, exit_on_error=False, **texts))
    except ArgumentError as error:
        raise ValueError(str(error)) from None


def plain(options: Any) -> Any:
    """The options with plain numbers in place of those of `common.numbers`, which YAML cannot write. In place."""
    for field in fields(options):
        value = getattr(options, field.name)
        if is_dataclass(value):
            plain(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            object.__setattr__(options, field.name, int(value) if isinstance(value, int) else float(value))
    return options


def run(main: Callable[[], None]) -> None:
    """Run a program. A ValueError, TypeError or OSError becomes one line on stderr and exit code 2. With HMDE_TRACEBACK
    set, it ends in a traceback, as errors of other kinds do."""
    try:
        main()
    except (ValueError, TypeError, OSError) as error:
        if os.environ.get("HMDE_TRACEBACK"):
            raise
        print(f"error: {printable(str(error))}", file=sys.stderr)
        sys.exit(2)


def printable(text: str) -> str:
    r"""One line of text that is safe in any terminal: white space becomes blanks, and control characters and lone
    surrogates become escapes.

    >>> printable("a\x1b[2J\tb\x9b2J")
    'a\\x1b[2J b\\x9b2J'
    """
    one_line = re.sub(r"[\t\n\r]+", " ", text)
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", lambda match: ascii(match[0])[1:-1], one_line)
