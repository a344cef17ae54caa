"""The command `hmde`, which is also `python -m hmde`. Each subcommand has a module of its own in hmde/commands."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

import hmde.common.threads

from hmde.common.extras import MissingExtra, missing_extras_named


def main(argv: list[str] | None = None) -> None:
    """Runs a subcommand with the options that its dataclass describes."""
    from hmde.commands.options import COMMANDS
    from hmde.common.command_line import options_from

    description = "Search documents in any language with a query in any other."
    options = options_from(COMMANDS, argv, positional=True, prog="hmde", description=description)
    name = next(name for name, kind in COMMANDS.items() if isinstance(options, kind))
    with missing_extras_named():
        import_module(f"hmde.commands.{name}").main(options)


def start() -> None:
    """Runs the command, of which a user's mistake, a missing extra among them, becomes one line and exit code 2."""
    gc.set_threshold(100_000)  # imports make many objects, which stay; to look through them takes .6 s
    try:
        with missing_extras_named():
            from hmde.common.command_line import run
    except MissingExtra as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    run(main)


if __name__ == "__main__":
    start()
