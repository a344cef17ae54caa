"""Change the code a little, one change at a time, and print the changes that no test notices.

    make mutants FILES="modeling_hmde/pooling_hmde.py"
    make mutants SINCE=main
    python -m tests.mutants --files '[training/losses/*.py]' --count 10 --seed 1

A change is tried on a copy of the repository, against those tests of its room that run the changed line, or that run
code in processes of their own. What became of it is kept in runs/mutants/judged.jsonl, and it is not tried again as
long as its file and the tests that judged it are the same: a run that was stopped goes on. Changes that change no
result are listed, with the reason, in tests/mutants/equivalent.yaml.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import yaml
from rich.console import Console
from rich.table import Table

from common.command_line import options_from, run
from tests.mutants.operators import Mutation, mutated, mutations
from tests.mutants.runner import Workspace, nearest_tests, preload
from tests.paths import REPOSITORY

CORE = [
    *("modeling_hmde/*_hmde.py", "training/losses/*.py", "training/loop/*.py", "search/*.py"),
    *("evaluation/metrics.py", "evaluation/significance.py", "evaluation/similarity.py", "evaluation/vectors.py"),
    *("evaluation/tasks/retrieval.py", "common/files.py"),
]
EQUIVALENT = Path(__file__).with_name("equivalent.yaml")
RESULTS = ("noticed", "equivalent", "survived")


@dataclass
class MutantOptions:
    """Change the code, one small change at a time, and see whether a test fails."""

    files: list[str] = field(default_factory=lambda: list(CORE))
    """Files to change, or patterns of their names; the core if not given."""

    since: str | None = None
    """Change only lines that differ from this commit."""

    count: int | None = None
    """Changes of each file at most, drawn at random; all if not given."""

    seed: int = 0
    """Of the draw."""

    survivors: bool = False
    """Try only what survived the last time, and all of it."""

    test_files: int | None = None
    """Files of tests that each change is tried against at most, the nearest by name; all of its room if not given."""

    most_seconds: float = 60.0
    """What the tests of one change take at most, without it; slower tests are left out."""


def main(argv: list[str] | None = None) -> None:
    options = options_from(MutantOptions, argv)
    files = sorted({str(path.relative_to(REPOSITORY)) for name in options.files for path in REPOSITORY.glob(name)})
    if not files:
        raise ValueError(f"no file is named {', '.join(options.files)}; give paths from the root of the repository")
    table: dict[str, Counter[str]] = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process of a test is left behind
    preload()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # PostgreSQL runs as another user where this one is root
        kept = REPOSITORY / "runs" / "mutants"
        workspace = Workspace(REPOSITORY, Path(folder).resolve(), kept / "measured.json")
        judgements = Judgements(kept / "judged.jsonl", workspace.folder)
        for file in files:
            chosen = choose(file, options, workspace.folder, judgements)
            if chosen:
                table[file] = judge(workspace, file, chosen, options, judgements)
    show(table)
    if any(results["survived"] for results in table.values()):
        sys.exit(1)


@dataclass(frozen=True)
class Judgement:
    """What became of a mutation.

    Args:
        by: what noticed it; None if it survived.
        made_from: digest of its file, and of the tests that noticed it, or of all tests of its room.
    """

    by: str | None
    made_from: str


class Judgements:
    """What became of the mutations that were tried, also by earlier runs: one JSON object a line.

    Args:
        path: of the file.
        repository: whose files decide whether a judgement still holds.
    """

    def __init__(self, path: Path, repository: Path) -> None:
        self.path, self.repository = path, repository
        self.known: dict[tuple[str, ...], Judgement] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            *name, by, made_from = json.loads(line)
            self.known[tuple(name)] = Judgement(by, made_from)

    def holding(self, file: str, mutation: Mutation) -> Judgement | None:
        """The last one on a mutation, if its file and the tests are still those that it was judged by."""
        found = self.known.get((file, *key(mutation)))
        return found if found and found.made_from == self._made_from(file, found.by) else None

    def survived(self, file: str, mutation: Mutation) -> bool:
        found = self.known.get((file, *key(mutation)))
        return found is not None and found.by is None

    def add(self, file: str, mutation: Mutation, by: str | None) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps([file, *key(mutation), by, self._made_from(file, by)]) + "\n")

    def _made_from(self, file: str, by: str | None) -> str:
        tests = nearest_tests(file, self.repository) if by is None else [by.split("::")[0]]
        digest = hashlib.sha256()
        for path in (self.repository / name for name in (file, *tests)):  # "time" and "start" are no files
            digest.update(path.read_bytes() if path.is_file() else b"")
        return digest.hexdigest()[:16]


def choose(file: str, options: MutantOptions, repository: Path, judgements: Judgements) -> dict[int, Mutation]:
    """The mutations of a file that are tried, by number."""
    found = dict(enumerate(mutations(ast.parse((repository / file).read_text(encoding="utf-8")))))
    if options.since is not None:
        changed = changed_lines(file, options.since)
        found = {number: one for number, one in found.items() if changed & {*range(one.lines[0], one.lines[1] + 1)}}
    if options.survivors:
        return {number: one for number, one in found.items() if judgements.survived(file, one)}
    if options.count is not None and options.count < len(found):
        numbers = sorted(Random(f"{options.seed} {file}").sample(sorted(found), options.count))
        found = {number: found[number] for number in numbers}
    return found


def changed_lines(file: str, commit: str) -> set[int]:
    """The lines of a file that differ from those at a commit.

    Raises:
        ValueError: git does not know the commit.
    """
    command = ["git", "diff", "--unified=0", commit, "--", file]
    diff = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if diff.returncode:
        raise ValueError(f"git compares {file} with no {commit!r}: {diff.stderr.strip()}")
    hunks = re.findall(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", diff.stdout, re.MULTILINE)
    return {line for first, count in hunks for line in range(int(first), int(first) + int(count or 1))}


def judge(
    workspace: Workspace, file: str, chosen: dict[int, Mutation], options: MutantOptions, judgements: Judgements
) -> Counter[str]:
    """How many mutations of a file were noticed, are equivalent and survived. Those that survived are printed."""
    known = [key(entry) for entry in equivalents().get(file, [])]
    results: Counter[str] = Counter()
    for number, mutation in chosen.items():
        if key(mutation) in known:
            results["equivalent"] += 1
            continue
        judgement = None if options.survivors else judgements.holding(file, mutation)
        if judgement is not None:
            by = judgement.by
        else:
            by = noticed_by(workspace, file, number, mutation, options)
            judgements.add(file, mutation, by)
        results["survived" if by is None else "noticed"] += 1
        if judgement is None or by is None:
            print(f"{file}:{mutation.lines[0]} {mutation.where}\n  - {mutation.was}\n  + {mutation.now}")
            print(f"  noticed by {by}" if by else "  SURVIVED", flush=True)
    return results


def noticed_by(workspace: Workspace, file: str, number: int, mutation: Mutation, options: MutantOptions) -> str | None:
    """What notices a mutation of a file, as `Workspace.noticed_by` says it."""
    source = (workspace.folder / file).read_text(encoding="utf-8")
    own, *others = nearest_tests(file, workspace.folder)
    files = [own, *others[: options.test_files]]
    lines = range(mutation.lines[0], mutation.lines[1] + 1)
    seconds_left = options.most_seconds
    # Together those that were measured before, as it saves to start. Then the others, as most need not be measured.
    measured = [tests for tests in files if tests in workspace.measured]
    for together in filter(None, [measured, *([tests] for tests in files if tests not in measured)]):
        reaching: dict[str, float] = {}
        for tests in together:
            reaching |= workspace.measure(tests).reaching(file, lines)
        chosen = shortest(reaching, seconds_left)
        seconds_left -= sum(chosen.values())
        by = workspace.noticed_by(file, mutated(source, number), chosen) if chosen else None
        if by:
            return by
    return None


def shortest(tests: dict[str, float], most_seconds: float) -> dict[str, float]:
    """Tests and their seconds, the shortest first, as long as they take no more together."""
    chosen: dict[str, float] = {}
    for test, seconds in sorted(tests.items(), key=lambda one: one[1]):
        if sum(chosen.values()) + seconds <= most_seconds:
            chosen[test] = seconds
    return chosen


def key(mutation: Mutation) -> list[str]:
    """What a mutation is known by when other lines of the file change."""
    return [mutation.where, mutation.was, mutation.now]


@dataclass(frozen=True)
class Equivalent(Mutation):
    """A mutation that changes no result, or none that anyone may rely on."""

    because: str = ""


def equivalents() -> dict[str, list[Equivalent]]:
    """Those of each file."""
    entries = yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8")) or {}
    return {file: [Equivalent(lines=(0, 0), **entry) for entry in of_file] for file, of_file in entries.items()}


def show(table: dict[str, Counter[str]]) -> None:
    printed = Table("file", "tried", *RESULTS, "score", title="Mutations", title_justify="left")
    for name, results in [*table.items(), ("all", sum(table.values(), Counter()))]:
        judged = results["noticed"] + results["survived"]
        score = f"{results['noticed'] / judged:.0%}" if judged else "-"
        printed.add_row(name, str(results.total()), *(str(results[result]) for result in RESULTS), score)
    Console().print(printed)


if __name__ == "__main__":
    run(main)
