"""Commands in processes of their own: how they end, what they print, and what memory they take."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from common.command_line import run

SECONDS_TO_REFUSE = 60  # on a machine that has much else to do
GIBIBYTE = 2**20  # in the kibibytes of `ru_maxrss`


class Ended(NamedTuple):
    """How a command ended: exit code (negative for a signal), stdout and stderr, peak memory beyond what this process
    has, in KiB, and seconds."""

    code: int
    output: str
    memory: int
    seconds: float

    @property
    def last_line(self) -> str:
        return self.output.strip().rpartition("\n")[2]


def call(main: Callable[[list[str]], None], argv: list[str], log: Path, seconds: float = SECONDS_TO_REFUSE) -> Ended:
    """Call the `main` of a command in a fork of this process, which has its imports already.

    Raises:
        AssertionError: it has not ended after some seconds.
    """
    process = os.fork()
    if not process:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        code = 1
        try:
            run(lambda: main(argv))
            code = 0
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return wait(process, log, seconds)


def wait(process: int, log: Path, seconds: float) -> Ended:
    """Wait for a fork of this process that prints into a log.

    Raises:
        AssertionError: it has not ended after some seconds, or takes 3 GiB more than this process.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    while True:
        ended, status, usage = os.wait4(process, os.WNOHANG)
        if ended:
            break
        too_late, too_large = time.monotonic() - began > seconds, _memory(process) > before + 3 * GIBIBYTE
        if too_late or too_large:
            os.kill(process, signal.SIGKILL)
            os.wait4(process, 0)
            said = log.read_bytes().decode("utf-8", "backslashreplace") if log.exists() else ""
            raise AssertionError(f"{'it does not end' if too_late else 'it takes all memory'}: {said[-3000:]}")
        time.sleep(0.02)
    output = log.read_bytes().decode("utf-8", "backslashreplace") if log.exists() else ""
    memory = max(0, usage.ru_maxrss - before)
    return Ended(os.waitstatus_to_exitcode(status), output, memory, time.monotonic() - began)


def _memory(process: int) -> int:
    """Memory of a process, in KiB."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    except (OSError, IndexError):
        return 0


def check_words(ended: Ended) -> None:
    """All that a command prints is harmless in a terminal, and an error is one line."""
    strange = {character for character in ended.output.replace("\r", "") if not character.isprintable()} - {"\n"}
    assert not strange, f"{strange} in {ended.output[:2000]!r}"
    assert ended.code in (0, 2), f"exit code {ended.code}: {ended.output[-2000:]}"
    if ended.code:
        assert ended.last_line.startswith("error: "), ended.output[-2000:]
        assert "Traceback" not in ended.output, ended.output[-2000:]
        assert len(ended.last_line) < 3000, f"an error of {len(ended.last_line)} characters"
