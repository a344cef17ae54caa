"""Numbers that others published, cell by cell, to stand beside ours.

The file is a list of tables, each

    - table: 2                        # where the numbers stand
      source: Galoğlu et al. 2023
      task: clef                      # the task of the recipe that they belong to
      measure: MAP
      protocol: what the numbers come from, where it differs from ours
      rows:
        hmde: {label: HMDE (XLW-4L), cells: {en-fi: 0.380, average: 0.249}}
        xlm: {label: XLM, cells: {average: 0.751}, not_run: the paper quotes Conneau and Lample 2019}

with rows by the systems' names in the recipe and cells by the rows of our results. `not_run` says why no recipe runs a
row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from evaluation.recipes import EvaluationRecipe
from evaluation.registry import TASKS
from evaluation.report import Results
from evaluation.tables import Table
from hmde.common.files import write_text


@dataclass
class Row:
    """A row of a published table; see the module's description."""

    label: str
    cells: dict[str, float]
    not_run: str | None = None

    def __post_init__(self) -> None:
        self.cells = {name: float(cell) for name, cell in self.cells.items()}


@dataclass
class Published:
    """A published table; see the module's description."""

    table: str | int
    source: str
    task: str
    measure: str
    protocol: str
    rows: dict[str, Row]


def read_published(path: Path) -> list[Published]:
    """The tables of a file.

    Raises:
        ValueError: the file is missing or malformed.
    """
    try:
        return [
            Published(**table | {"rows": {name: Row(**row) for name, row in table["rows"].items()}})
            for table in yaml.safe_load(path.read_text(encoding="utf-8"))
        ]
    except (OSError, TypeError, ValueError, LookupError, AttributeError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(
            f"{path} is no list of tables as replications/published.py describes them: {error!r}"
        ) from None


def print_rows(recipe: EvaluationRecipe, published: list[Published]) -> None:
    """Prints which rows of the published tables a recipe runs, which not, and why. Reads neither models nor data."""
    run = names_by_result(recipe)
    for table in published:
        reasons = {name: reason for _, name, reason in rows_not_run([table], run)}
        number = len(table.rows) - len(reasons)
        print(f"table {table.table} ({table.source}), {table.task}: {number} of {len(table.rows)} rows are run")
        for name, row in table.rows.items():
            print(f"  not run  {row.label}: {reasons[name]}" if name in reasons else f"  run      {row.label}")


def write_beside_published(path: Path, published: list[Published], results: Results) -> None:
    """Write a page, if anything is published: tables of our numbers beside the published ones, then a list of the
    published rows that were not run, and why. Print the tables, too."""
    beside = [beside_ours(table, results[table.task]) for table in published if table.task in results]
    tables = [table.to_markdown() for table in beside if table.scores]
    not_run = [
        f"* table {table.table} ({table.source}), {table.rows[name].label}: {reason}\n"
        for table, name, reason in rows_not_run(published, results)
    ]
    if published:
        missing = ["## Published rows that were not run\n", "".join(not_run)] if not_run else []
        write_text(path, "\n".join(["# Beside published numbers\n", *tables, *missing]))
        print("\n".join(tables))


def names_by_result(recipe: EvaluationRecipe) -> dict[str, set[str]]:
    """What a recipe runs: of each result by its name, the names of the systems or of the fine-tuned models in it."""
    names: dict[str, set[str]] = {}
    for kind in TASKS:
        for task, options in getattr(recipe, kind, {}).items():
            taken = {name for name, system in recipe.systems.items() if options.takes(system)}
            names[task] = taken | options.systems.keys()
    return names


def rows_not_run(
    published: Iterable[Published], run: Mapping[str, Collection[str]]
) -> Iterator[tuple[Published, str, str]]:
    """The published rows that have no result, each with its table, its name and the reason.

    Args:
        run: the names of the systems and classifiers that have a result, by task.
    """
    for table in published:
        for name, row in table.rows.items():
            if name not in run.get(table.task, ()):
                yield table, name, row.not_run or f"this run has no {name} on {table.task}"


def beside_ours(published: Published, ours: Mapping[str, Mapping[str, Any]]) -> Table:
    """A table of three columns a system: our number, the published one, the difference.

    Args:
        ours: results on the table's task by system.
    """
    columns: dict[str, dict[str, float]] = {}
    for system, row in published.rows.items():
        if system not in ours:
            continue
        scores = ours[system]["rows"] | ours[system]["averages"]
        measured = {name: values[published.measure] for name, values in scores.items() if published.measure in values}
        own = {name: measured[name] for name in row.cells if name in measured}
        columns[f"{row.label}: ours"] = own
        columns["published" + " " * len(columns)] = row.cells
        columns["difference" + " " * len(columns)] = {name: own[name] - row.cells[name] for name in own}
    title = f"{published.measure}, {published.source}, table {published.table}. Published: {published.protocol}"
    return Table(title, "", columns)
