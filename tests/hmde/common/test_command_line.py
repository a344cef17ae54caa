"""What a user's mistake looks like in every command: one line on stderr, and exit code 2."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hmde.common.command_line import MOST_CHARACTERS, options_from, run
from hmde.common.numbers import PositiveInt
from tests.paths import REPOSITORY


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
    with pytest.raises(ValueError, match=r'(?s)^Parser key "first":\s.*size') as error:
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


@pytest.mark.parametrize("error", [ValueError, TypeError, OSError, MemoryError, FloatingPointError])
def test_what_an_option_an_input_or_the_machine_causes_is_one_line(
    capsys: pytest.CaptureFixture[str], error: type[Exception]
) -> None:
    def main() -> None:
        raise error("this is so; do that")

    with pytest.raises(SystemExit) as ended:
        run(main)
    assert (ended.value.code, capsys.readouterr().err) == (2, "error: this is so; do that\n")


def test_what_the_terminal_shows_of_a_warning_is_one_short_line_without_control_characters() -> None:
    run(lambda: None)
    record = logging.LogRecord(
        "", logging.WARNING, "", 0, "%s is\n\x1b[2J%s", ("it", "x" * 10**6 + "the way out"), None
    )
    assert logging.lastResort is not None
    line = logging.lastResort.format(record)
    assert line.startswith("it is \\x1b[2J")
    assert line.endswith("the way out")
    assert len(line) < MOST_CHARACTERS + 20


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


@pytest.mark.parametrize("as_a_library_says_it", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_becomes_one_line_and_the_code_of_a_shell(
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    code: int,
    as_a_library_says_it: type[BaseException],
) -> None:
    before, cleaned = signal.getsignal(signal.SIGTERM), []

    def main() -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise as_a_library_says_it from None
        finally:
            cleaned.append(True)

    with pytest.raises(SystemExit) as ended:
        run(main)
    assert (ended.value.code, capsys.readouterr().err, cleaned) == (code, f"stopped by {number.name}\n", [True])
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_reader_that_has_read_enough_ends_a_command_without_a_word() -> None:
    program = "from hmde.common.command_line import run; run(lambda: print(*range(100_000), sep='\\n'))"
    script = f'"{sys.executable}" -c "{program}" | head -n 1; exit ${{PIPESTATUS[0]}}'
    ended = subprocess.run(["bash", "-c", script], cwd=REPOSITORY, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("0\n", "", 128 + signal.SIGPIPE)


def test_output_that_finds_no_room_is_an_error() -> None:
    program = "from hmde.common.command_line import run; run(lambda: print('lost'))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, cwd=REPOSITORY, env=environment
        )
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [b"error: [Errno 28] No space left on device"]


def test_an_integer_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        options_from(Options, ["--size", str(2**63)])
    assert options_from(Options, ["--size", str(2**63 - 1)]) == Options(2**63 - 1)


@pytest.mark.slow
def test_pretrain_says_what_is_wrong_in_one_line() -> None:
    command = [sys.executable, "training/pretrain.py", "--epochs", "0", "--corpus", "x", "--output", "y"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "epochs" in ended.stderr
