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
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from evaluation.tables import Table


@dataclass
class Published:
    """A published table; see the module's description."""

    table: str | int
    source: str
    task: str
    measure: str
    protocol: str
    rows: dict[str, dict[str, Any]]


def read_published(path: Path) -> list[Published]:
    """The tables of a file.

    Raises:
        ValueError: the file is missing or malformed.
    """
    if not path.is_file():
        raise ValueError(f"{path} is missing; published is the name of a file of published numbers")
    known = {field.name for field in fields(Published)}
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"{path} is no YAML in UTF-8: {error}") from None
    if not isinstance(entries, list):
        raise ValueError(f"{path} is no list of tables; evaluation/published.py says what is in it")
    tables = []
    for index, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or set(entry) != known or not isinstance(entry["rows"], dict):
            raise ValueError(f"{path}, table {index}: is {entry!r:.200}; it must have the keys {sorted(known)}")
        for system, row in entry["rows"].items():
            if (
                not isinstance(row, dict)
                or {*row} - {"not_run"} != {"label", "cells"}
                or not _is_of_numbers(row["cells"])
            ):
                raise ValueError(
                    f"{path}, table {index}, row {system}: is {row!r:.200}; it must have a label, and cells that are "
                    "numbers by name, and may have not_run"
                )
        tables.append(Published(**entry))
    return tables


def _is_of_numbers(cells: Any) -> bool:
    return isinstance(cells, dict) and all(isinstance(cell, int | float) for cell in cells.values())


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
                yield table, name, row.get("not_run", f"this run has no {name} on {table.task}")


def beside_ours(published: Published, ours: Mapping[str, Mapping[str, Any]]) -> Table:
    """A table of three columns a system: our number, the published one, the difference.

    Args:
        published: one table.
        ours: results on its task by system.
    """
    columns: dict[str, dict[str, float]] = {}
    measure = published.measure
    for system, row in published.rows.items():
        if system not in ours:
            continue
        scores = ours[system]["rows"] | ours[system]["averages"]
        own = {name: scores[name][measure] for name in row["cells"] if measure in scores.get(name, {})}
        columns[f"{row['label']}: ours"] = own
        columns["published" + " " * len(columns)] = row["cells"]
        columns["difference" + " " * len(columns)] = {name: own[name] - row["cells"][name] for name in own}
    title = f"{measure}, {published.source}, table {published.table}. Published: {published.protocol}"
    return Table(title, "", columns)
