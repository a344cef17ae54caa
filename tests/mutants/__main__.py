"""Change the code a little, one change at a time, and print the changes that no test notices.

    make mutants FILES="modeling_hmde/pooling_hmde.py"
    make mutants SINCE=main
    python -m tests.mutants --files '[training/losses/*.py]' --count 10 --seed 1

A change is tried on a copy of the repository, against those tests of its room that run the changed line. Changes that
change no result are listed, with the reason, in tests/mutants/equivalent.yaml.
"""

from __future__ import annotations

import ast
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
    """Try only what survived the last time."""

    test_files: int | None = None
    """Files of tests that each change is tried against at most, the nearest first; all of its room if not given."""

    most_seconds: float = 60.0
    """What the tests of one change take at most, without it; slower tests are left out."""


def main(argv: list[str] | None = None) -> None:
    options = options_from(MutantOptions, argv)
    files = sorted({str(path.relative_to(REPOSITORY)) for name in options.files for path in REPOSITORY.glob(name)})
    if not files:
        raise ValueError(f"no file is named {', '.join(options.files)}; give paths from the root of the repository")
    kept = REPOSITORY / "runs" / "mutants"
    survivors = json.loads((kept / "survivors.json").read_text("utf-8")) if (kept / "survivors.json").exists() else {}
    table: dict[str, Counter[str]] = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process of a test is left behind
    preload()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(REPOSITORY, Path(folder).resolve(), kept / "measured.json")
        for file in files:
            chosen = choose(file, options, survivors.get(file, []))
            if chosen:
                table[file], survivors[file] = judge(workspace, file, chosen, options)
                (kept / "survivors.json").write_text(json.dumps(survivors), encoding="utf-8")
    show(table)
    if any(results["survived"] for results in table.values()):
        sys.exit(1)


def choose(file: str, options: MutantOptions, survivors: list[list[str]]) -> dict[int, Mutation]:
    """The mutations of a file that are tried, by number."""
    found = dict(enumerate(mutations(ast.parse((REPOSITORY / file).read_text(encoding="utf-8")))))
    if options.since is not None:
        changed = changed_lines(file, options.since)
        found = {number: one for number, one in found.items() if changed & {*range(one.lines[0], one.lines[1] + 1)}}
    if options.survivors:
        found = {number: one for number, one in found.items() if key(one) in survivors}
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
    workspace: Workspace, file: str, chosen: dict[int, Mutation], options: MutantOptions
) -> tuple[Counter[str], list[list[str]]]:
    """How many mutations of a file were noticed, are equivalent and survived, and those that survived."""
    source = (workspace.folder / file).read_text(encoding="utf-8")
    known = [key(entry) for entry in equivalents().get(file, [])]
    own, *others = nearest_tests(file, workspace.folder)
    nearest = [own, *others[: options.test_files]]
    results: Counter[str] = Counter()
    survivors = []
    for number, mutation in chosen.items():
        if key(mutation) in known:
            results["equivalent"] += 1
            continue
        lines = range(mutation.lines[0], mutation.lines[1] + 1)
        by, seconds_left = None, options.most_seconds
        for tests in nearest:  # one after another: most are not needed, nor measured
            reaching = workspace.measure(tests).reaching(file, lines, seconds_left)
            seconds_left -= sum(reaching.values())
            by = workspace.noticed_by(file, mutated(source, number), reaching) if reaching else None
            if by:
                break
        results["survived" if by is None else "noticed"] += 1
        print(f"{file}:{lines[0]} {mutation.where}\n  - {mutation.was}\n  + {mutation.now}")
        print(f"  noticed by {by}" if by else "  SURVIVED", flush=True)
        if by is None:
            survivors.append(key(mutation))
    return results, survivors


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
