"""What is public says what it is, and the site of it is built without a warning."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hmde
import modeling_hmde
from tests.paths import REPOSITORY


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The names in `__all__` that are no plain values, and the methods and properties that their classes add."""
    for name in module.__all__:
        value = getattr(module, name)
        if not isinstance(value, str):
            yield name, value
        for cls in value.__mro__ if inspect.isclass(value) else ():
            if cls.__module__.partition(".")[0] in ("hmde", "modeling_hmde"):
                members = {key: member for key, member in vars(cls).items() if not key.startswith("_")}
                yield from ((f"{cls.__name__}.{key}", getattr(cls, key)) for key in members if is_method(members[key]))


def is_method(member: Any) -> bool:
    return inspect.isfunction(member) or isinstance(member, (property, classmethod, staticmethod))


@pytest.mark.parametrize("module", [hmde, modeling_hmde], ids=lambda module: module.__name__)
def test_what_is_public_says_what_it_is(module: ModuleType) -> None:
    without = sorted({name for name, value in public(module) if not inspect.getdoc(value)})
    assert without == []


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_has_all_that_is_public(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed; it is in the extra 'docs'")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    done = subprocess.run(build, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "reference" / "index.html").read_text(encoding="utf-8")
    for module in (hmde, modeling_hmde):
        assert [name for name in module.__all__ if name != "__version__" and f'.{name}"' not in page] == []
    assert 'id="modeling_hmde.HMDEForDocumentEmbedding.encode_documents"' in page
