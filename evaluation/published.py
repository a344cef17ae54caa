"""Numbers that others published, cell by cell, to stand beside ours.

The file is a list of tables, each

    - table: 2                        # where the numbers stand
      source: Galoğlu et al. 2023
      task: clef                      # the task of the recipe that they belong to
      measure: MAP
      protocol: what the numbers come from, where it differs from ours
      rows:
        hmde: {label: HMDE (XLW-4L), cells: {en-fi: 0.380, average: 0.249}}

with rows by the systems' names in the recipe and cells by the rows of our results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from evaluation.report import Table


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
    tables = []
    for number, entry in enumerate(yaml.safe_load(path.read_text(encoding="utf-8")), start=1):
        if set(entry) != known:
            raise ValueError(f"{path}, table {number}: has the keys {sorted(entry)}; they must be {sorted(known)}")
        for system, row in entry["rows"].items():
            if set(row) != {"label", "cells"}:
                raise ValueError(
                    f"{path}, table {number}, row {system}: has {sorted(row)}; they must be cells and label"
                )
        tables.append(Published(**entry))
    return tables


def comparison(published: Published, ours: Mapping[str, Mapping[str, Any]]) -> Table:
    """A table of three columns a system: our number, the published one, the difference.

    Args:
        published: one table.
        ours: results on its task by system.
    """
    columns: dict[str, dict[str, float]] = {}
    for system, row in published.rows.items():
        if system not in ours:
            continue
        scores = ours[system]["rows"] | ours[system]["averages"]
        found = {name: scores[name][published.measure] for name in row["cells"] if name in scores}
        columns[f"{row['label']}: ours"] = found
        columns["published" + " " * len(columns)] = row["cells"]
        columns["difference" + " " * len(columns)] = {name: found[name] - row["cells"][name] for name in found}
    title = f"{published.measure}, {published.source}, table {published.table}. Published: {published.protocol}"
    return Table(title, "", columns)
