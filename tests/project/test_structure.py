"""The files that a model folder ships stand alone, and commands need no more than their extra. That imports run down is
checked by `lint-imports`."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from transformers.dynamic_module_utils import get_imports, get_relative_import_files

from tests.paths import REPOSITORY

SHIPPED = sorted((REPOSITORY / "modeling_hmde").glob("*_hmde.py"))
LIBRARIES = {"torch", "transformers", "tokenizers", "huggingface_hub", "numpy", "sentencex"}


def imports(file: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node


def packages(file: Path) -> set[str]:
    """The top-level packages that a file imports by name."""
    names = set()
    for node in imports(file):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif node.level == 0:
            names.add(node.module or "")
    return {name.split(".")[0] for name in names}


def launched() -> set[Path]:
    """The scripts that a page or a docstring starts by their path."""
    folders = (REPOSITORY / name for name in ("docs", "training", "replications"))
    pages = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".md", ".py")]
    texts = (page.read_text(encoding="utf-8") for page in [REPOSITORY / "README.md", *pages])
    return {REPOSITORY / script for text in texts for script in re.findall(r"launch (?:--\S+ \S+ )*(\S+\.py)", text)}


def test_a_script_that_is_started_by_its_path_hides_no_package() -> None:
    """Python then looks into its folder first, for `evaluation` and `datasets` too."""
    assert len(launched()) >= 5
    folders = [REPOSITORY / name for name in ("training", "replications", "evaluation", "hmde", "modeling_hmde")]
    imported = set().union(*(packages(file) for folder in folders for file in folder.rglob("*.py")))
    for script in launched():
        beside = {path.stem for path in script.parent.iterdir() if path.suffix == ".py" or path.is_dir()}
        assert not beside & imported, f"{script} hides {beside & imported}"


MOST_LINES, MOST_TEST_LINES = 500, 700


def is_test(file: Path) -> bool:
    return file.parts[0] == "tests" or file.name.startswith("test_") or file.name == "conftest.py"


def test_a_file_can_be_read_at_one_sitting() -> None:
    """No file of the product is longer than 500 lines, and no file of tests longer than 700."""
    too_long = {}
    for path in REPOSITORY.rglob("*.py"):
        file = path.relative_to(REPOSITORY)
        if not file.parts[0].startswith(".") and file.parts[0] not in ("runs", "build", "data"):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > (MOST_TEST_LINES if is_test(file) else MOST_LINES):
                too_long[str(file)] = lines
    assert too_long == {}


REST = {"replications", "benchmarks"}


def test_the_core_imports_no_replication_and_no_benchmark() -> None:
    """As `lint-imports` checks for packages; here also for programs that are no package."""
    core = [path for path in REPOSITORY.glob("*/") if path.name.isidentifier() and path.name not in REST | {"tests"}]
    for folder in core:
        for file in folder.rglob("*.py"):
            assert not packages(file) & REST, file


def test_the_package_is_flat() -> None:
    python_files = sorted((REPOSITORY / "modeling_hmde").rglob("*.py"))
    assert python_files == sorted([REPOSITORY / "modeling_hmde" / "__init__.py", *SHIPPED])
    assert SHIPPED


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_files_import_the_libraries_of_a_model_and_flat_siblings_only(file: Path) -> None:
    assert packages(file) <= LIBRARIES | sys.stdlib_module_names
    for node in imports(file):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            assert node.level == 1
            assert node.module is not None, "the Hub's loader does not see `from . import x`"
            assert (file.parent / f"{node.module}.py") in SHIPPED


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_the_hubs_loader_asks_for_no_package_that_users_of_transformers_lack(file: Path) -> None:
    """It refuses to load where a package imported outside `try` is missing, whatever we would have said of it."""
    assert set(get_imports(file)) <= LIBRARIES - {"sentencex"} | sys.stdlib_module_names


def test_the_hubs_loader_finds_every_file_from_the_model() -> None:
    model = REPOSITORY / "modeling_hmde" / "modeling_hmde.py"
    assert {Path(file) for file in get_relative_import_files(model)} == set(SHIPPED) - {model}


def test_no_name_in_training_hides_a_package() -> None:
    """`python training/pretrain.py` puts training/ itself first on the path, where `import datasets` looks first."""
    names = {path.stem for path in (REPOSITORY / "training").iterdir() if not path.name.startswith("__")}
    assert "loop" in names
    assert not names & (sys.stdlib_module_names | set(packages_distributions()))


def packages_in_all(file: Path, seen: set[Path]) -> set[str]:
    """The packages that a file of the repository imports, and the files of the repository that it imports."""
    found = set()
    for node in imports(file):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        folder = file.parent if isinstance(node, ast.ImportFrom) and node.level else REPOSITORY
        for module in modules:
            path = folder.joinpath(*module.split("."))
            own = next((path for path in (path.with_suffix(".py"), path / "__init__.py") if path.exists()), None)
            if own is None:
                found.add(module.split(".")[0])
            elif own not in seen:
                seen.add(own)
                found |= packages_in_all(own, seen)
    return found


@pytest.mark.parametrize(
    "command",
    [
        "training/pretrain.py",
        "replications/sentences/pretrain.py",
        "training/corpus/__main__.py",
        "replications/sentences/corpus.py",
    ],
)
def test_training_needs_the_packages_of_its_extra_and_no_others(command: str) -> None:
    """Those, and what they bring themselves. Documents of one's own are read by what the extra `files` brings."""
    readers = packages_in_all(REPOSITORY / "hmde" / "index" / "encoder.py", set())
    extra = (readers if "corpus/__main__" in command else set()) | {
        "accelerate",
        "datasets",
        "duckdb",
        "faiss",
        "filelock",
        "isal",
        "jinja2",
        "jsonargparse",
        "peft",
        "py3langid",
        "pyarrow",
        "safetensors",
        "tqdm",
        "yaml",
    }
    assert packages_in_all(REPOSITORY / command, set()) <= LIBRARIES | extra | sys.stdlib_module_names
