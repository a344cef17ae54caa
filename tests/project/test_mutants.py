"""`make mutants`: which changes are tried, which tests they meet, and what is said of them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.mutants.__main__ import changed_lines, equivalents, key, shortest
from tests.mutants.operators import mutated, mutations
from tests.mutants.runner import nearest_tests
from tests.paths import REPOSITORY


def lines_of(source: str) -> list[str]:
    """What each mutation makes of the lines that it changes."""
    return [mutation.now for mutation in mutations(ast.parse(source))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", ["a <= b", "a > b"]),
        ("a = b == c", ["a = b != c"]),
        ("a = b in c", ["a = b not in c"]),
        ("a = b + c * 3", ["a = b - c * 3", "a = b + c / 3", "a = b + c * 4"]),
        ("a = 'b' + c", []),
        ("a += 1", ["pass", "a = 1", "a -= 1", "a += 2"]),
        ("a = b and c and d", ["a = b or c or d", "a = c and d", "a = b and d", "a = b and c"]),
        ("a = not b", ["a = b"]),
        ("a = True", ["a = False"]),
        ("a = 0.5", ["a = 1.0"]),
        ("a = b[1:]", ["a = b[:]", "a = b[2:]"]),
        ("a = b if c else d", ["a = b if False else d", "a = b if True else d"]),
        ("a = [b for b in c if d]", ["a = [b for b in c]"]),
        ("a(b, c=d)", ["pass", "a(b)"]),
        ("a = min(b)", ["a = max(b)"]),
        ("a = b.float()", ["a = b"]),
        ("a.b = c", ["pass"]),
        ("if a:\n    raise ValueError(f'{b + 1}')", ["if False:", "if True:"]),
        ("def f(a: int = 1) -> list[2]:\n    return a", ["def f(a: int=2) -> list[2]:", "return None"]),
        ("with a():\n    b", ["if True:"]),
        ("@a\n@property\ndef f():\n    pass", [""]),
        ("for a in b:\n    continue", ["break"]),
        ("'''A text.'''\nfrom a import b\nA: Literal['b', 3]\nprint(3)\nassert a == 3", []),
        ("if TYPE_CHECKING:\n    a = 1", []),
    ],
)
def test_each_kind_of_change_is_tried(source: str, expected: list[str]) -> None:
    found = [line.splitlines()[0] if line else "" for line in lines_of(source)]
    assert found == expected


def test_a_mutation_changes_one_place_and_the_tree_is_whole_afterwards() -> None:
    source = "def f(a):\n    if a > 0 and a < 9:\n        a = a + 1\n    return a\n"
    tree = ast.parse(source)
    whole = ast.dump(tree)
    found = list(mutations(tree))
    assert ast.dump(tree) == whole
    sources = [mutated(source, number) for number in range(len(found))]
    assert len({*sources, source}) == len(found) + 1
    for mutation, changed in zip(found, sources):
        different = [line for line in changed.splitlines() if line not in source.splitlines()]
        assert [line.strip() for line in different] == mutation.now.splitlines()
        assert mutation.where == "f"
        assert source.splitlines()[mutation.lines[0] - 1].strip() == mutation.was


def test_what_is_said_to_be_equivalent_is_still_a_change_that_would_be_tried() -> None:
    """Else the line has changed since, and the reason may not hold any more."""
    for file, entries in equivalents().items():
        tried = [key(mutation) for mutation in mutations(ast.parse((REPOSITORY / file).read_text(encoding="utf-8")))]
        for entry in entries:
            assert key(entry) in tried, f"{file}: {entry}"
            assert entry.because


def test_a_file_meets_its_own_examples_then_the_tests_that_name_it_then_those_of_its_room() -> None:
    found = nearest_tests("training/losses/processes.py", REPOSITORY)
    assert found[:2] == ["training/losses/processes.py", "tests/training/test_processes.py"]
    assert all(file.startswith("tests/training/") for file in found[1:])


def test_the_shortest_tests_come_first_and_no_more_than_there_is_time_for() -> None:
    assert list(shortest({"long": 50.0, "short": 1.0, "middle": 10.0}, 60)) == ["short", "middle"]
    assert shortest({"long": 50.0}, 10) == {}


def test_lines_that_changed_since_a_commit_are_those_that_git_names(tmp_path: Path, monkeypatch) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    file = tmp_path / "a.py"
    file.write_text("a = 1\nb = 2\nc = 3\nd = 4\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "a")
    file.write_text("a = 1\nb = 5\nc = 3\nd = 4\ne = 5\nf = 6\n")
    monkeypatch.setattr("tests.mutants.__main__.REPOSITORY", tmp_path)
    assert changed_lines("a.py", "HEAD") == {2, 5, 6}
    with pytest.raises(ValueError, match="no 'nothing'"):
        changed_lines("a.py", "nothing")


RUN = """
import sys
from pathlib import Path
from tests.mutants import runner
from tests.mutants.runner import Workspace, nearest_tests
runner.STARTING = 10
workspace = Workspace(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
measured = [workspace.measure(tests) for tests in nearest_tests("room/adding.py", workspace.folder)]
reaching = [one.reaching("room/adding.py", range(2, 3)) for one in measured]
print([list(tests) for tests in reaching])
source = (workspace.folder / "room/adding.py").read_text()
for old, new in (("a + b", "a - b"), ("a + b", "b + a"), ("return a", "while True: a"), ("def", "dfe")):
    print(workspace.noticed_by("room/adding.py", source.replace(old, new), reaching[1]))
"""


def test_changes_are_tried_on_a_copy_against_tests_that_run_the_line(tmp_path: Path) -> None:
    repository, folder, memory = (tmp_path / name for name in ("repository", "copy", "memory.json"))
    files = {
        "pyproject.toml": """
            [tool.pytest.ini_options]
            pythonpath = ["."]
            addopts = "--doctest-modules --import-mode=importlib"
        """,
        "room/adding.py": """
            def add(a, b):
                return a + b

            def other():
                return 1
        """,
        "tests/room/test_adding.py": """
            import subprocess
            import sys
            from room.adding import add, other

            def test_other():
                assert other() == 1

            def test_add():
                assert add(1, 2) == 3

            def test_add_elsewhere():
                subprocess.run([sys.executable, "-c", "from room.adding import add; assert add(1, 2) == 3"], check=True)
        """,
    }
    files = {name: textwrap.dedent(text).lstrip() for name, text in files.items()}
    for name, text in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    folder.mkdir()
    command = [sys.executable, "-c", RUN, str(repository), str(folder), str(memory)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    test = "tests/room/test_adding.py::test_add"
    reaching = [[], [test, f"{test}_elsewhere"]]
    assert done.stdout.splitlines() == [str(reaching), test, "None", "time", "tests/room/test_adding.py"]
    assert {name: (repository / name).read_text() for name in files} == files
    assert json.loads(memory.read_text())
