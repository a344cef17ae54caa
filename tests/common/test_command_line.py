"""What a user's mistake looks like in every command: one line on stderr, and exit code 2."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from common.command_line import options_from, run
from common.numbers import PositiveInt


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


@dataclass
class Nested:
    """A command whose options have sections."""

    first: Options | None = None
    sizes: dict[str, PositiveInt] = field(default_factory=dict)


@pytest.mark.parametrize("section", ["{}", "{size: 4}"])
def test_an_unknown_section_of_a_file_is_an_error_and_an_empty_known_one_takes_the_defaults(
    tmp_path: Path, section: str
) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("first: {}\n")
    assert options_from(Nested, ["--config", str(file)]).first == Options(3)
    file.write_text(f"frist: {section}\n")
    with pytest.raises(ValueError, match="frist"):
        options_from(Nested, [f"--config={file}"])


def test_a_number_out_of_range_is_named_without_the_types_that_it_might_have(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'(?s)^Parser key "first": .*size') as error:
        options_from(Nested, ["--first.size", "four"])
    assert "NoneType" not in str(error.value)
    assert type(options_from(Nested, ["--sizes", '{"a": 4}']).sizes["a"]) is int


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
