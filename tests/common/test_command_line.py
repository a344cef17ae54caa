"""What a user's mistake looks like in every command: one line on stderr, and exit code 2."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest

from common.command_line import options_from, run


@dataclass
class Options:
    """What the command does.

    Args:
        size: of what it makes.
    """

    size: int = 3


@dataclass
class Other:
    """What the other command does."""

    place: str


@pytest.mark.parametrize("argv", [["--sise", "4"], ["--size", "four"]])
def test_a_wrong_option_is_a_value_error_that_names_it(argv: list[str]) -> None:
    with pytest.raises(ValueError, match=r"sise|size"):
        options_from(Options, argv)


def test_each_subcommand_has_options_of_its_own() -> None:
    commands = {"make": Options, "move": Other}
    assert options_from(commands, ["make", "--size", "5"], positional=True) == Options(5)
    assert options_from(commands, ["move", "there"], positional=True) == Other("there")


def test_a_mistake_becomes_one_line_without_control_characters_and_exit_code_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def main() -> None:
        raise ValueError("no \x1b[31mfile\nnamed so")

    with pytest.raises(SystemExit) as ended:
        run(main)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: no \\x1b[31mfile named so\n"


def test_a_mistake_of_ours_keeps_its_traceback() -> None:
    def main() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run(main)


def test_a_traceback_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def main() -> None:
        raise ValueError("no")

    monkeypatch.setenv("HMDE_TRACEBACK", "1")
    with pytest.raises(ValueError, match="no"):
        run(main)


def test_pretrain_says_what_is_wrong_in_one_line() -> None:
    command = [sys.executable, "training/pretrain.py", "--epochs", "0", "--corpus", "x", "--output", "y"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "epochs" in ended.stderr
