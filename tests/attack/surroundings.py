"""Each command where the disk is full or read-only, where streams, home and locale are missing, under strange names,
beside another one that writes the same, and without its inputs. It does its work, or says in one line why it does not,
leaves nothing half-written, and the next run completes.

One attack tries all commands.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from common.terminal import open_closed_streams

from tests.attack.commands import Ended
from tests.attack.programs import (
    NOT_TWICE,
    PROGRAMS,
    Program,
    check_nothing_half,
    check_whole,
    finish,
    resumed,
    run,
    start,
    undisturbed,
)
from tests.paths import REPOSITORY

NAMES = [
    "a b",
    "a\nb",
    "ä 猫 кот",
    "-rf",
    "~",
    "$HOME",
    "%s",
    "{0}",
    "a: b",
    "[a]",
    "'\"",
    "null",
    "1e3",
    "#a",
    "\udcff",
]
BROKEN_PIPE = 141
MEBIBYTE = 2**20


def read_only(name: str, random: Random, folder: Path) -> None:
    with small_disk(folder, 64 * MEBIBYTE) as disk:
        program = PROGRAMS[name](disk)
        _mount("remount,ro", disk)
        ended = run(program, folder / "log.txt")
        if name != "query":  # which writes nothing
            check_refused(ended, program.made.name)
        _mount("remount,rw", disk)
        check_completes(name, program, folder)


def full_disk(name: str, random: Random, folder: Path) -> None:
    with small_disk(folder, 64 * MEBIBYTE) as disk:
        program = PROGRAMS[name](disk)
        free = random.choice([0, 4096, 16384, 65536, 200_000, 1_000_000])
        with (disk / "filling").open("wb") as filling:
            filling.write(bytes(shutil.disk_usage(disk).free - free))
        ended = run(program, folder / "log.txt")
        if ended.code:
            check_refused(ended, program.made.name)
        check_nothing_half(name, disk)
        (disk / "filling").unlink()
        check_completes(name, program, folder)


def bare_environment(name: str, random: Random, folder: Path) -> None:
    """No locale, no home or one that cannot be written, in folders whose names are not ASCII."""
    program = PROGRAMS[name](folder / "ä 猫")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "1", "LC_ALL": "C"}
    environment |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    home = random.choice([None, None, "/proc/nobody", "/dev/null"])
    ended = run(
        program, folder / "log.txt", anew=True, environment=environment | ({"HOME": home} if home is not None else {})
    )
    if ended.code and home is not None:
        check_refused(ended, home)
    else:
        assert ended.code == 0, f"exit code {ended.code}: {ended.output[-3000:]}"
        check_whole(name, program, folder)


def closed_streams(name: str, random: Random, folder: Path) -> None:
    """Some of stdin, stdout and stderr are closed, or nobody reads what is written to stdout."""
    program = PROGRAMS[name](folder)
    anew = random.random() < 0.3
    closed = random.choice([(0,), (1,), (0, 1), (0, 1, 2), ()])

    def prepare() -> None:
        if not closed:
            reading, writing = os.pipe()
            os.dup2(writing, 1)
            os.close(reading)
        for descriptor in closed:
            os.close(descriptor)
        if not anew:  # as Python does when it starts, and then we
            for descriptor in closed:
                setattr(sys, ("stdin", "stdout", "stderr")[descriptor], None)
            open_closed_streams()

    ended = run(program, folder / "log.txt", anew=anew, prepare=prepare)
    assert ended.code in ((0,) if closed else (0, BROKEN_PIPE)), f"{ended.code} without {closed}: {ended.output}"
    assert "Traceback" not in ended.output, ended.output
    check_completes(name, program, folder, already=ended.code == 0)


def strange_names(name: str, random: Random, folder: Path) -> None:
    strange = random.choice(NAMES)
    program = PROGRAMS[name](folder / strange)
    ended = run(program, folder / "log.txt", prepare=lambda: os.chdir(folder))
    if ended.code:
        check_refused(ended, "")
    else:
        check_whole(name, program, folder)


def relative_names(name: str, random: Random, folder: Path) -> None:
    """Relative names, from another folder than that of the code."""
    program = PROGRAMS[name](folder)
    here = folder / "here"
    here.mkdir()
    relative = program._replace(argv=[part.replace(f"{folder}/", "../") for part in program.argv])
    ended = run(relative, folder / "log.txt", prepare=lambda: os.chdir(here))
    assert ended.code == 0, f"exit code {ended.code}: {ended.output[-3000:]}"
    check_whole(name, program, folder)


def two_writers(name: str, random: Random, folder: Path) -> None:
    """At least one of two that write the same does its work; the other one does too, or refuses."""
    program = PROGRAMS[name](folder)
    logs = [folder / "one.txt", folder / "other.txt"]
    seconds = random.choice([0.0, random.uniform(0, undisturbed(name).seconds)])
    first = start(program, logs[0])
    time.sleep(seconds)
    second = start(program, logs[1])
    ends = [finish(process, log) for process, log in zip((first, second), logs)]
    for ended in ends:
        if ended.code:
            check_refused(ended, program.made.name)
    assert any(not ended.code for ended in ends), "\n".join(ended.output for ended in ends)
    check_whole(name, program, folder)


def deleted_inputs(name: str, random: Random, folder: Path) -> None:
    """What a command reads is removed at a random moment, as a whole or a file of it."""
    program, kept, log = PROGRAMS[name](folder), folder / "kept", folder / "log.txt"
    shutil.copytree(program.inputs, kept)
    seconds = random.uniform(0, undisturbed(name).seconds)
    process = start(program, log)
    time.sleep(seconds)
    files = sorted(path for path in kept.rglob("*") if path.is_file())
    for file in random.choice([[random.choice(files)], files]):
        (program.inputs / file.relative_to(kept)).unlink()
    ended = finish(process, log)
    if ended.code:
        check_refused(ended, "")
    check_nothing_half(name, folder)
    shutil.copytree(kept, program.inputs, dirs_exist_ok=True)
    check_completes(name, program, folder, already=not ended.code)


def check_refused(ended: Ended, name: str) -> None:
    """A command has ended with one line that says what it was about, and exit code 2.

    Raises:
        AssertionError: it has not.
    """
    errors = re.findall(r"(?:^|\r|\x1b\[A)(error: .*)", ended.output, re.MULTILINE)  # perhaps behind a progress bar
    assert ended.code == 2, f"exit code {ended.code}: {ended.output[-3000:]}"
    assert len(errors) == 1, ended.output[-3000:]
    assert "Traceback" not in ended.output, ended.output[-3000:]
    assert name in errors[0], f"{errors[0]!r} does not name {name}"


def check_completes(name: str, program: Program, folder: Path, already: bool = False) -> None:
    """The next run makes what a program makes; one that made it `already` is not run again.

    Raises:
        AssertionError: it does not.
    """
    if not already and not (program.made.exists() and name in NOT_TWICE):
        ended = run(resumed(program), folder / "again.txt")
        assert ended.code == 0, f"the next run does not complete: {ended.output[-3000:]}"
    check_whole(name, program, folder)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A disk of so many bytes, mounted in a folder."""
    disk = folder / "disk"
    disk.mkdir(parents=True)
    _mount(f"size={size}", disk, "-t", "tmpfs", "tmpfs")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _mount(options: str, disk: Path, *what: str) -> None:
    subprocess.run(["mount", "-o", options, *what, str(disk)], check=True, capture_output=True)


def can_mount() -> bool:
    """Whether this user may mount disks."""
    return os.geteuid() == 0 and not subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode


def _in(surroundings: Callable[[str, Random, Path], None], random: Random, folder: Path) -> str:
    """All commands, each in these surroundings. The failures of all are said."""
    failures = []
    for name in PROGRAMS:
        if name == "export" and random.random() < 0.8:  # it takes ten times as long as another command
            continue
        (folder / name).mkdir()
        try:
            surroundings(name, random, folder / name)
        except AssertionError as error:
            failures.append(f"{name}: {error}")
    assert not failures, "\n".join(failures)
    return f"{len(PROGRAMS)} commands"


ATTACKS = {
    f"surroundings: {surroundings.__name__.replace('_', ' ')}": functools.partial(_in, surroundings)
    for surroundings in (
        *((read_only, full_disk) if can_mount() else ()),
        *(bare_environment, closed_streams, strange_names, relative_names, two_writers, deleted_inputs),
    )
}
