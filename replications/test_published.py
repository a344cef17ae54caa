"""Every row of every published table is run by its recipe, from models that the commands of a page make, or says why it
is not."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pytest

from hmde.common import command_line
from replications.published import names_by_result, read_published, rows_not_run
from tests.paths import REPOSITORY

pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules")  # a program that is a module is run once more

PAGES = {  # by recipe, the page with the commands that make its models
    "configuration/evaluate/paper.yaml": "docs/paper.md",
    "replications/t_mde/evaluate.yaml": "replications/t_mde/README.md",
}
COMMANDS = re.compile(
    r"^#+ The (?:paper's|thesis') tables$(.*?)^## What differs from the (?:paper|thesis)$", re.DOTALL | re.MULTILINE
)
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# What stands for the programs of a block: each prints its arguments, NUL between them, and a line feed.
STAND_INS = (
    "for program in accelerate python; do eval \"$program() { printf '%s\\0' \\\"\\$@\\\"; printf '\\n'; }\"; done\n"
)


class Parsed(Exception):
    """Ends a program as soon as it has its options."""


def options_of(program: str, options: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a program makes of its options.

    Args:
        program: a file, or a module.
    """
    parse = command_line.auto_cli

    def stop(*arguments: Any, **others: Any) -> None:
        raise Parsed(parse(*arguments, **others))

    run = runpy.run_path if program.endswith(".py") else partial(runpy.run_module, alter_sys=True)
    monkeypatch.chdir(REPOSITORY)
    with monkeypatch.context() as patches:
        patches.setattr(command_line, "auto_cli", stop)
        patches.setattr(sys, "argv", [program, *options])
        with pytest.raises(Parsed) as parsed:
            run(program, run_name="__main__")
    return parsed.value.args[0]


@pytest.mark.parametrize("path", PAGES)
def test_a_published_row_is_run_or_says_why_not(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = options_of("replications.evaluate", ["--config", path], monkeypatch)
    tables = read_published(REPOSITORY / recipe.published)
    missing = {(table.table, name) for table, name, _ in rows_not_run(tables, names_by_result(recipe))}
    excused = {(table.table, name) for table in tables for name, row in table.rows.items() if row.not_run}
    assert missing - excused == set()
    assert excused - missing == set()


def rows_of(recipe: Any) -> dict[str, set[str]]:
    """The rows that each result of a recipe can have, averages aside."""
    rows = {name: set(task.pairs) for name, task in (recipe.retrieval | recipe.translation_search).items()}
    tasks = recipe.classification | recipe.mlp_classification | recipe.finetuned_classification
    for name, task in tasks.items():
        rows[name] = {f"{one}-{other}" for one in task.train_languages for other in task.test_languages}
    return rows


@pytest.mark.parametrize("path", PAGES)
def test_a_published_cell_is_of_a_row_of_its_task_and_an_average_is_that_of_its_cells(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = options_of("replications.evaluate", ["--config", path], monkeypatch)
    rows = rows_of(recipe)
    for table in read_published(REPOSITORY / recipe.published):
        for row in table.rows.values():
            cells = {name: value for name, value in row.cells.items() if name in rows.get(table.task, ())}
            others = {name: value for name, value in row.cells.items() if name not in cells}
            assert {*others} <= {"average", "average, same language", "average, across languages", "transfer gap"}
            assert all(0 < value < 1 for value in row.cells.values())
            if cells and "average" in others:  # what papers print differs by as much: XLM without TLM, .713 and .707
                assert np.mean(list(cells.values())) == pytest.approx(others["average"], abs=0.006)
            if len(others) == 3:  # 5 rows of one language, 20 across languages; LASER (2018) has .726, and .721 so
                mean = (5 * others["average, same language"] + 20 * others["average, across languages"]) / 25
                assert mean == pytest.approx(others["average"], abs=0.006)


def commands(page: str) -> list[list[str]]:
    """The Python programs that a page starts for the paper's tables, and their arguments, as the shell has them."""
    section = COMMANDS.search((REPOSITORY / page).read_text(encoding="utf-8"))
    assert section
    blocks = "".join(BLOCK.findall(section[1]))
    bash = shutil.which("bash")
    assert bash
    shell = subprocess.run([bash, "-c", STAND_INS + blocks], env={"PATH": ""}, capture_output=True, text=True)
    lines = [line.removesuffix("\0").split("\0") for line in shell.stdout.splitlines()]
    return [[word for word in line[:2] if word not in ("launch", "-m")] + line[2:] for line in lines]


def folders(value: Any) -> Iterator[str]:
    """The folders below runs/ that options name."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from folders(item)
    elif isinstance(value, str) and value.startswith("runs/"):
        yield value


@pytest.mark.parametrize("page", sorted({*PAGES.values()}))
def test_the_commands_of_a_page_make_all_that_its_recipes_read(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command has options that its program takes, and reads nothing but what those before it write."""
    made = {"runs/dumps"}  # where a corpus keeps what it downloads
    for program, *given in commands(page):
        options = asdict(options_of(program, given, monkeypatch))
        output = options.pop("output", None)
        if given[:1] == ["rows"]:  # reads nothing
            continue
        missing = {
            folder for folder in folders(options) if not any(f"{folder}/".startswith(f"{name}/") for name in made)
        }
        assert not missing, (program, given)
        made.add(output)
