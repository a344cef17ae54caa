"""Runs tests on a copy of the repository, in processes that are forked after torch and transformers were imported."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import coverage
import pytest
from transformers import dynamic_module_utils

# Imported once. LanceDB is not among them: it does not survive a fork.
PRELOADED = [
    *(
        "torch",
        "torch._dynamo",
        "torch.distributed",
        "accelerate",
        "datasets",
        "hypothesis",
        "jsonargparse",
        "sentencex",
    ),
    *("scipy.stats", "sklearn.linear_model", "sentence_transformers", "transformers.trainer", "rich.table"),
    *(f"transformers.models.{name}.modeling_{name}" for name in ("bert", "xlm_roberta", "modernbert")),
]
GIGABYTE = 2**30
MEMORY = 6 * GIGABYTE  # of one process; a change may ask for any amount
STARTING = 20  # seconds of the processor that pytest and imports may take beside the tests


@dataclass
class Measured:
    """An unmutated run of one file of tests.

    Args:
        seconds: of the processor, of each test.
        reached: by file of the repository, then line: the tests that run it. "" where it runs while the file is
            imported or a fixture is made, so that any of its tests may depend on it.
        elsewhere: the tests that run code in processes of their own, where it is not seen which lines.
        made_from: digests of the files that ran.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    reached: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    elsewhere: list[str] = field(default_factory=list)
    made_from: dict[str, str] = field(default_factory=dict)

    def reaching(self, file: str, lines: range) -> dict[str, float]:
        """The tests that run one of these lines of a file, or may do so in another process, and their seconds."""
        by_line = self.reached.get(file, {})
        found = {*self.elsewhere, *(test for line in lines for test in by_line.get(str(line), []))}
        return {test: seconds for test, seconds in self.seconds.items() if "" in found or test in found}


class Workspace:
    """A copy of what git knows of a repository, where files may be changed.

    Args:
        repository: a git working tree; nothing is written there.
        folder: of the copy.
        memory: file of what was measured, kept from run to run.
    """

    def __init__(self, repository: Path, folder: Path, memory: Path) -> None:
        self.repository, self.folder, self.memory = repository, folder, memory
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=repository, capture_output=True, check=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (repository / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(repository / name, folder / name)
        (folder / "runs").mkdir(exist_ok=True)
        self.log = folder / "runs" / "log.txt"
        self.time = int(time.time())
        self.measured: dict[str, Measured] = {}
        if memory.exists():
            kept = json.loads(memory.read_text(encoding="utf-8"))
            self.measured = {name: Measured(**values) for name, values in kept.items()}

    def replace(self, file: str, source: str) -> None:
        """Each version has a time of its own, or Python would take another one's bytecode."""
        self.time += 1
        (self.folder / file).write_text(source, encoding="utf-8")
        os.utime(self.folder / file, (self.time, self.time))

    def measure(self, tests: str) -> Measured:
        """Run a file of tests unmutated, unless that was done with the same files before.

        Raises:
            ValueError: a test fails.
        """
        known = self.measured.get(tests)
        if known is not None and all(self._digest(file) == digest for file, digest in known.made_from.items()):
            return known
        result = self.folder / "runs" / "measured.json"
        status = self._in_a_fork(lambda: _measure(self.folder, tests, result), seconds=None)
        if status != 0:
            output = self.log.read_text(encoding="utf-8", errors="replace")
            raise ValueError(f"{tests} fails without any change:\n{output[-3000:]}")
        measured = Measured(**json.loads(result.read_text(encoding="utf-8")))
        measured.made_from = {file: self._digest(file) for file in (tests, *measured.reached)}
        self.measured[tests] = measured
        self.memory.parent.mkdir(parents=True, exist_ok=True)
        self.memory.write_text(json.dumps({name: vars(one) for name, one in self.measured.items()}), encoding="utf-8")
        return measured

    def _digest(self, file: str) -> str:
        path = self.folder / file
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""

    def noticed_by(self, file: str, source: str, tests: dict[str, float]) -> str | None:
        """What fails with another source of a file: a test, a file of tests, or "time"; None if nothing does.

        Args:
            tests: seconds of the tests that are run, in their order; the first that fails is the last.
        """
        original = (self.folder / file).read_text(encoding="utf-8")
        self.replace(file, source)
        try:
            status = self._in_a_fork(lambda: _run(list(tests)), sum(tests.values()))
        finally:
            self.replace(file, original)
        if status == 0:
            return None
        if status is None:
            return "time"
        output = self.log.read_text(encoding="utf-8", errors="replace")
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        return failed[1] if failed else "start"

    def _in_a_fork(self, task: Callable[[], int], seconds: float | None) -> int | None:
        """The status that a task ends with in a process of its own; None if it takes far longer than `seconds`."""
        sys.stdout.flush()
        sys.stderr.flush()
        temporary = self.folder / "runs" / "tmp"
        temporary.mkdir(exist_ok=True)
        child = os.fork()
        if child == 0:
            try:
                self._enter(temporary, seconds)
                status = task()
            except BaseException:
                traceback.print_exc()
                status = 70
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        ends = time.monotonic() + (3600 if seconds is None else 120 + 10 * seconds)
        ended, status = 0, 0
        try:
            while not ended and time.monotonic() < ends:
                ended, status = os.waitpid(child, os.WNOHANG)
                time.sleep(0.02)
        finally:
            with suppress(ProcessLookupError):  # it, if time is up or this process is told to end, and what it started
                os.killpg(child, signal.SIGKILL)
            if not ended:
                os.waitpid(child, 0)
            shutil.rmtree(temporary, ignore_errors=True)
        if not ended or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
            return None
        return os.waitstatus_to_exitcode(status)

    def _enter(self, temporary: Path, seconds: float | None) -> None:
        os.setpgid(0, 0)
        log = os.open(self.log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        null = os.open(os.devnull, os.O_RDONLY)
        for here, there in ((0, null), (1, log), (2, log)):
            os.dup2(there, here)
        # By the processor's time, because other programs may have the cores.
        if seconds is not None:
            limit = int(STARTING + 4 * seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(self.folder)
        os.environ |= {
            "PYTHONPATH": str(self.folder),  # before the editable installation
            "TMPDIR": str(temporary),
            "HF_MODULES_CACHE": str(temporary / "modules"),
        }
        dynamic_module_utils.HF_MODULES_CACHE = str(temporary / "modules")  # it was read when transformers was imported
        tempfile.tempdir = str(temporary)
        ours = {str(self.repository), ""}
        sys.path[:] = [str(self.folder), *(path for path in sys.path if path not in ours)]
        own = {path.stem for path in self.repository.iterdir()}
        for name in list(sys.modules):  # what was imported from the repository is not the copy
            if name.split(".")[0] in own:
                del sys.modules[name]


def preload() -> None:
    for name in PRELOADED:
        with suppress(ImportError):
            import_module(name)
    import torch

    torch.set_num_threads(1)
    gc.freeze()  # pytest collects garbage at its end, which would take longer than many tests


OPTIONS = ["-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "-rfE", "--tb=line", "--no-header"]


def _run(tests: list[str]) -> int:
    """Runs some tests of a file, or several, in the order of the files."""
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))
    return _pytest([*OPTIONS, *files], Chosen(set(tests)))


def _pytest(arguments: list[str], plugin: object) -> int:
    return int(pytest.main([*arguments, f"--basetemp={tempfile.gettempdir()}/pytest"], plugins=[plugin]))


class Chosen:
    """Leaves out all tests but some."""

    def __init__(self, tests: set[str]) -> None:
        self.tests = tests

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.tests]


class Recorder:
    """Seconds of the processor and lines of each test, and which of them leave the process."""

    def __init__(self, recording: coverage.Coverage) -> None:
        self.recording = recording
        self.seconds: dict[str, float] = {}
        self.elsewhere: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.recording.switch_context(item.nodeid)
        try:
            yield
        finally:
            self.recording.switch_context("")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began, others_began = _seconds()
        try:
            return (yield)
        finally:
            ended, others_ended = _seconds()
            self.seconds[item.nodeid] = ended - began
            # A fresh process is forked by another one, for which no test waits.
            if others_ended > others_began or "run_in_a_fresh_process" in getattr(item, "fixturenames", ()):
                self.elsewhere.append(item.nodeid)


def _seconds() -> tuple[float, float]:
    """Of the processor: this process's with those of the processes that it waited for, and the latter alone."""
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    of_others = others.ru_utime + others.ru_stime
    return own.ru_utime + own.ru_stime + of_others, of_others


def _measure(folder: Path, tests: str, result: Path) -> int:
    recording = coverage.Coverage(data_file=None, include=[f"{folder}/*"], config_file=False)
    recorder = Recorder(recording)
    recording.start()
    status = _pytest([*OPTIONS, tests], recorder)
    recording.stop()
    data = recording.get_data()
    reached: dict[str, dict[str, list[str]]] = {}
    for file in data.measured_files():
        name = str(_original(Path(file), folder).relative_to(folder))
        for line, found in data.contexts_by_lineno(file).items():
            lines = reached.setdefault(name, {})
            lines[str(line)] = sorted({*lines.get(str(line), []), *found})
    measured = {"seconds": recorder.seconds, "reached": reached, "elsewhere": recorder.elsewhere}
    result.write_text(json.dumps(measured), encoding="utf-8")
    return 0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else status


def _original(file: Path, folder: Path) -> Path:
    """The file of the package that a saved model's code was copied from; any other file itself."""
    original = folder / "modeling_hmde" / file.name
    return original if "transformers_modules" in file.parts and original.exists() else file


def nearest_tests(file: str, repository: Path) -> list[str]:
    """The files of tests of a file's room: itself for its examples, those that name it or import it, and the others,
    the shortest first.

    A room is the deepest folder in tests/ that mirrors a folder of the file.
    """
    parts = Path(file).parent.parts
    rooms = [repository / "tests" / Path(*parts[:depth]) for depth in range(len(parts), 0, -1)]
    room = next((room for room in rooms if room.is_dir()), repository / "tests")
    stem, module = Path(file).stem.removesuffix("_hmde"), ".".join(Path(file).with_suffix("").parts)

    def distance(path: Path) -> tuple[bool, bool, int]:
        text = path.read_text(encoding="utf-8")
        return stem not in path.stem, not re.search(rf"\b{module}\b", text), len(text)

    return [file, *(str(path.relative_to(repository)) for path in sorted(room.rglob("test_*.py"), key=distance))]
