"""What README.md, MODEL_CARD.md and docs/ tell people to run, runs; and what they point at is there.

The Python blocks of a page are one program, run in a new process in an empty folder, in which tiny models and data
stand under the names that the blocks use. A relative path and a name on the Hub look alike to transformers, which takes
the folder where there is one: so `from_pretrained("intfloat/multilingual-e5-small")` runs too, because that name stands
in MODELS.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hmde.release.released import VERSION
from tests.paths import REPOSITORY

FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = {
    str(path.relative_to(REPOSITORY)): path.read_text(encoding="utf-8")
    for pattern in ("*.md", "docs/**/*.md", "sample/README.md", "replications/sentences/README.md")
    for path in sorted(REPOSITORY.glob(pattern))
}
JOURNAL = [page for page in PAGES if page.startswith("docs/journal/")]  # its commands are those of an earlier commit
MANUAL = [page for page in PAGES if page not in JOURNAL]
FAST = ("README.md", "docs/encode.md", "docs/search.md")

# The names by which the blocks call a model, and what stands there.
MODELS = {
    "runs/hmde-small": "hmde",
    "runs/e5-small": "sentence encoder",
    "runs/student": "sentence encoder",
    "intfloat/multilingual-e5-small": "sentence encoder",
}


def program_of(text: str) -> str:
    """The Python blocks of a page, each at its own lines, so that a traceback names the line of the page.

    >>> program_of("Say\\n```python\\nx = 1\\n```\\n")
    '\\n\\nx = 1'
    """
    lines = [""] * text.count("\n")
    for block in FENCE.finditer(text):
        if block[1] == "python":
            begin = text[: block.start(2)].count("\n")
            lines[begin : begin + block[2].count("\n")] = block[2].splitlines()
    return "\n".join(lines).rstrip()


ELSEWHERE = "docs/integrations.md"  # test_examples.py runs its sections, each by itself
PROGRAMS = {page: program for page in MANUAL if page != ELSEWHERE and (program := program_of(PAGES[page]))}


@pytest.fixture(scope="module")
def models(xlmr: Path, exported_folder: Path) -> dict[str, Path]:
    return {"hmde": exported_folder, "sentence encoder": xlmr}


def write_xquad_r(folder: Path) -> None:
    """One paragraph and one question, in the format of XQuAD-R."""
    folder.mkdir(parents=True)
    for language, text, question in (("en", "It is round.", "What form?"), ("de", "Er ist rund.", "Welche Form?")):
        questions = [{"id": "q", "question": question, "answers": [{"answer_start": 0, "text": text}]}]
        content = {"data": [{"title": "Moon", "paragraphs": [{"context": text, "qas": questions}]}]}
        (folder / f"{language}.json").write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    "page", [page if page in FAST else pytest.param(page, marks=pytest.mark.slow) for page in PROGRAMS]
)
def test_the_python_blocks_of_a_page_run_from_a_fresh_process(
    page: str, tmp_path: Path, models: dict[str, Path], run_in_a_fresh_process: Callable[..., str]
) -> None:
    for name, kind in MODELS.items():
        shutil.copytree(models[kind], tmp_path / name)
    write_xquad_r(tmp_path / "data" / "xquad-r")
    shutil.copytree(models["hmde"], tmp_path / "cache" / f"hmde-small-{VERSION}")  # as if put together before
    program = f'import os; os.environ["HMDE_CACHE"] = "cache"; {PROGRAMS[page]}'
    run_in_a_fresh_process(program, folder=tmp_path, path=[str(REPOSITORY)])


@pytest.mark.parametrize("page", MANUAL)
def test_a_command_names_files_modules_and_targets_that_are_there(page: str) -> None:
    text = re.sub(r"\s*\n\s*", " ", PAGES[page])  # a command may be broken into lines
    for file in re.findall(r"(?:--config |--config_file |launch |python )([\w./-]+\.(?:ya?ml|py))", text):
        assert (REPOSITORY / file).is_file(), file
    for module in {*re.findall(r"(?:python|launch[\w -]*) -m ([\w.]*\w)", text)} - sys.stdlib_module_names:
        path = REPOSITORY / module.replace(".", "/")
        program = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        runs = re.search(r"^ *run\(", program.read_text(encoding="utf-8"), re.MULTILINE)
        assert runs, f"{module} defines a program and does not run it"
    for target in re.findall(r"[\n`]make (\w+)", PAGES[page]):
        assert re.search(rf"^{target}:", (REPOSITORY / "Makefile").read_text(), re.MULTILINE), target


@pytest.mark.parametrize("page", MANUAL)
def test_a_page_with_commands_says_which_environment_they_need(page: str) -> None:
    blocks = [block[2] for block in FENCE.finditer(PAGES[page]) if block[1] == "bash"]
    if any(re.search(r"^(python|pip|accelerate|hf) ", block, re.MULTILINE) for block in blocks):
        assert "source .venv/bin/activate" in PAGES[page]


@pytest.mark.parametrize("page", PAGES)
def test_a_block_says_what_it_is_and_python_is_spelt_so(page: str) -> None:
    """A block marked otherwise ("py", "Python") would run nowhere, unnoticed."""
    assert {block[1] for block in FENCE.finditer(PAGES[page])} <= {"python", "bash", "bibtex", "sql", "text"}


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading.

    >>> anchor("Why did it match?")
    'why-did-it-match'
    """
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_a_link_leads_to_a_file_and_to_a_heading_that_are_there(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", PAGES[page])):
        if "://" in link:
            continue
        name, _, heading = link.partition("#")
        target = (REPOSITORY / page).parent / name if name else REPOSITORY / page
        assert target.exists(), link
        if heading:
            headings = re.findall(r"^#+ (.+)$", FENCE.sub("", target.read_text(encoding="utf-8")), re.MULTILINE)
            assert heading in map(anchor, headings), link


@pytest.mark.parametrize("page", MANUAL)
def test_a_path_of_the_repository_that_stands_in_backticks_is_there(page: str) -> None:
    names = [path.name for path in REPOSITORY.iterdir() if path.is_dir() and path.name.isidentifier()]
    folders = "|".join(name for name in names if name not in ("runs", "data"))  # what users make
    base = Path(page).parent if page.startswith("sample") else Path()
    for path in re.findall(rf"`((?:{folders})/[\w./-]*)`", PAGES[page]):
        assert (REPOSITORY / base / path).exists(), path


def test_every_page_is_on_the_map_of_the_readme_or_of_the_journal() -> None:
    for page in PAGES:
        if page in JOURNAL[:-1]:
            assert f"]({Path(page).name})" in PAGES["docs/journal/README.md"], page
        elif page != "README.md":
            assert f"]({page})" in PAGES["README.md"], page


def test_the_readme_and_the_manual_stay_short() -> None:
    lines = {page: len(text.splitlines()) for page, text in PAGES.items()}
    assert lines["README.md"] <= 110
    assert sum(lines[page] for page in MANUAL if page.startswith("docs/")) <= 1350


def test_a_page_of_the_manual_says_for_whom_it_is_and_what_it_needs() -> None:
    for page in MANUAL:
        if page.startswith("docs/"):
            assert re.search(r"^\*.*\bFor who.*It needs.*\*$", PAGES[page].split("\n\n")[1].replace("\n", " ")), page


def test_a_page_that_code_names_is_there() -> None:
    names = subprocess.check_output(
        ["git", "ls-files", "*.py", "*.yaml", "*.md", "Dockerfile"], cwd=REPOSITORY, text=True
    )
    for name in {*names.splitlines()} - {*JOURNAL, "CHANGELOG.md"}:
        for page in re.findall(r"\bdocs/[\w./-]+\.md\b", (REPOSITORY / name).read_text(encoding="utf-8")):
            assert (REPOSITORY / page).exists() or (REPOSITORY / name).parent.joinpath(page).exists(), f"{name}: {page}"
