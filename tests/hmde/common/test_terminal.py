"""Whatever a program says when it warns or fails, the terminal shows it and does not obey it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from hmde.common.terminal import MOST_CHARACTERS, printable

import pytest

from tests.paths import REPOSITORY


def said(program: str) -> tuple[int, str]:
    """Exit code and stderr of a program that imports hmde.common.terminal first."""
    program = f"import hmde.common.terminal\n{program}"
    ended = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    "program",
    ["raise KeyError('a\\x1b[2J')", "import logging; logging.getLogger('x').warning('%s is a\\x1b[2J', 'it')"],
)
def test_an_uncaught_error_and_a_warning_have_no_control_characters(program: str) -> None:
    _, stderr = said(program)
    assert "a\\x1b[2J" in stderr or "a\\\\x1b[2J" in stderr
    assert not {character for character in stderr if not character.isprintable()} - {"\n"}


@pytest.mark.parametrize(
    "imports",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGINT); import json",
        "try: raise KeyboardInterrupt\nexcept BaseException as error: raise ModuleNotFoundError('json') from error",
        "try: raise KeyboardInterrupt\nexcept BaseException: raise RuntimeError('__set_name__')",
    ],
    ids=["plain", "another error because of it", "another error during it"],
)
def test_ctrl_c_among_the_imports_is_one_line(imports: str) -> None:
    code, stderr = said(imports)
    assert code == -signal.SIGINT
    assert stderr == "stopped by SIGINT\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_leads_nowhere_and_not_into_the_next_file(closed: str, tmp_path: Path) -> None:
    program = f"""if True:
        import os, sys, hmde.common.terminal
        with open({str(tmp_path / "file")!r}, "w") as file:
            print("no"), print("no", file=sys.stderr), sys.stderr.isatty(), sys.stdin.read()
            os.write(1, b"no"), os.write(2, b"no")
            file.write("yes")
    """
    command = ["bash", "-c", f'"{sys.executable}" -c "$0" {closed}', program]
    ended = subprocess.run(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "file").read_text() == "yes"


def test_the_middle_of_a_flood_is_left_out() -> None:
    text = printable("The beginning" + "x" * 10**6 + "the way out")
    assert len(text) < MOST_CHARACTERS + 10
    assert text.startswith("The beginning")
    assert text.endswith("the way out")
