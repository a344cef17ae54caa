"""Each command gets SIGINT and SIGTERM at a random moment of its run, now and then in a new interpreter, while it
imports. It says so in one line, and the next run completes."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from random import Random

from tests.attack.commands import Ended
from tests.attack.programs import (
    PROGRAMS,
    check_nothing_half,
    check_whole,
    finish,
    is_served,
    resumed,
    run,
    server,
    start,
    undisturbed,
)
from tests.paths import REPOSITORY

ENDS = {signal.SIGINT: (130, -signal.SIGINT), signal.SIGTERM: (143, -signal.SIGTERM)}
SHARE_ANEW = 0.1  # of the runs, in a new interpreter


def interrupt(name: str, random: Random, folder: Path) -> str:
    """One command, stopped by each signal and then run to its end."""
    said = [_interrupt(name, number, random, folder / number.name) for number in ENDS]
    return "; ".join(said)


def _interrupt(name: str, number: signal.Signals, random: Random, folder: Path) -> str:
    program, log = PROGRAMS[name](folder), folder / "log.txt"
    anew = random.random() < SHARE_ANEW
    seconds = random.uniform(0, undisturbed(name, anew).seconds)
    stopped = _stop(start(program, log, anew=anew), number, seconds, log)
    if stopped.code:  # else it had ended before
        assert stopped.code in ENDS[number], f"{name}: exit code {stopped.code} after {stopped.output}"
        assert "Traceback" not in stopped.output or _has_not_begun(stopped), f"{name}: {stopped.output}"
        if stopped.code > 0:
            assert f"stopped by {number.name}" in stopped.output, f"{name}: {stopped.output}"
            check_nothing_half(name, folder)
    if name in NOT_TWICE and program.made.exists():
        check_whole(name, program, folder)
    else:
        ended = run(resumed(program), log)
        assert ended.code == 0, f"{name} does not complete after {number.name}: {ended.output}"
        check_whole(name, program, folder)
    return f"{name}, {number.name}: {stopped.last_line[-80:]!r}"


def interrupt_server(random: Random, folder: Path) -> str:
    """The server, stopped by each signal as it starts or serves. It ends by itself, and the next one serves."""
    said = []
    for number in ENDS:
        program, log = server(folder / number.name), folder / f"{number.name}.log"
        stopped = _stop(start(program, log), number, random.uniform(0, 4), log)
        assert stopped.code in (0, *ENDS[number]), f"exit code {stopped.code} after {stopped.output}"
        assert "Traceback" not in stopped.output, stopped.output
        said.append(stopped.last_line)
    process = start(program, log)
    assert is_served(program), log.read_text()
    ended = _stop(process, signal.SIGTERM, 0, log)
    assert ended.code in (0, 143), f"exit code {ended.code} after {ended.output}"
    return "; ".join(said)


def _has_not_begun(stopped: Ended) -> bool:
    """Whether a program was stopped before its imports reached common/terminal.py, which says the rest."""
    return stopped.code < 0 and ("import common.terminal" in stopped.output or str(REPOSITORY) not in stopped.output)


def _stop(process: int, number: signal.Signals, seconds: float, log: Path) -> Ended:
    time.sleep(seconds)
    os.kill(process, number)  # it is not waited for yet, so that its number is nobody else's
    return finish(process, log)


NOT_TWICE = {"pretrain", "finetune", "average", "unpack"}  # do not write over what is there
ATTACKS = {f"{name} is stopped": partial(interrupt, name) for name in PROGRAMS} | {"serve is stopped": interrupt_server}
