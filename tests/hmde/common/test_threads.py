"""Threads of every command soon sleep while they wait, and oneDNN remembers few shapes, unless the user has said
otherwise."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

COMMANDS = [
    path.relative_to(REPOSITORY)
    for folder in sorted(REPOSITORY.iterdir())
    if folder.name.isidentifier() and folder.name not in ("tests", "examples", "runs")
    for path in sorted(folder.rglob("*.py"))
    if path.name == "__main__.py" or '__name__ == "__main__"' in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_sets_the_policy_before_it_imports_any_package(command: Path) -> None:
    imported = [
        name
        for node in ast.parse((REPOSITORY / command).read_text(encoding="utf-8")).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
        if name.split(".")[0] not in sys.stdlib_module_names
    ]
    assert imported[0] == "hmde.common.threads"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, "PASSIVE 10000 64"),
        ({"GOMP_SPINCOUNT": "5"}, "PASSIVE 5 64"),
        ({"OMP_WAIT_POLICY": "ACTIVE", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "9"}, "ACTIVE None 9"),
    ],
)
def test_what_the_user_has_set_stays(given: dict[str, str], kept: str) -> None:
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    environment = {name: value for name, value in os.environ.items() if name not in names} | given
    program = f"import hmde.common.threads, os; print(*map(os.environ.get, {names}))"
    printed = subprocess.check_output([sys.executable, "-c", program], cwd=REPOSITORY, env=environment, text=True)
    assert printed.strip() == kept
