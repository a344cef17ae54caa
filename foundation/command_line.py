"""One way to give options to every command: a dataclass, filled from YAML (`--config FILE`) and `--key value`."""

from __future__ import annotations

from typing import TypeVar

from jsonargparse import auto_cli, set_parsing_settings

Options = TypeVar("Options")

set_parsing_settings(docstring_parse_attribute_docstrings=True)  # --help shows the sentence under each field


def options_from(dataclass: type[Options], argv: list[str] | None = None) -> Options:
    """The options of a command. An unknown key ends the process with an error that names it.

    Args:
        dataclass: its fields are the options, its docstring is what `--help` says.
        argv: the command line without the program's name; that of this process if not given.
    """
    return auto_cli(dataclass, args=argv, as_positional=False)
