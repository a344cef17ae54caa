"""Tables of numbers, and the machine that computed them. Knows no tasks and no systems."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

Scores = dict[str, dict[str, float]]  # by pair or language, then by measure

PACKAGES = (
    "torch", "transformers", "tokenizers", "sentencex", "sentence-transformers", "ir_measures", "bm25s",
    "PyStemmer", "lancedb", "scikit-learn", "scipy",
)  # fmt: skip


@dataclass
class Table:
    """One row a pair or language, one column a system.

    Args:
        title: what is measured, and how.
        row_name: what a row is.
        scores: by system, then by row; what a system has no score for is left empty.
        marks: put behind a score, by system and row, such as a sign of significance.
        note: what the marks mean.
    """

    title: str
    row_name: str
    scores: dict[str, dict[str, float]]
    marks: dict[str, dict[str, str]] = field(default_factory=dict)
    note: str = ""

    def to_markdown(self) -> str:
        """
        >>> print(Table("MAP", "pair", {"first": {"en-de": 0.5}}).to_markdown())
        MAP
        <BLANKLINE>
        | pair | first |
        |:---|---:|
        | en-de | 0.500 |
        <BLANKLINE>
        """
        lines = [[self.row_name, *self.scores]]
        for name in dict.fromkeys(name for rows in self.scores.values() for name in rows):
            lines.append([name, *(self._cell(system, name) for system in self.scores)])
        written = ["| " + " | ".join(line) + " |" for line in lines]
        written.insert(1, "|:---|" + "---:|" * len(self.scores))
        note = [self.note, ""] if self.note else []
        return "\n".join([self.title, "", *written, "", *note])

    def _cell(self, system: str, name: str) -> str:
        if name not in self.scores[system]:
            return ""
        return f"{self.scores[system][name]:.3f}{self.marks.get(system, {}).get(name, '')}"


def averages(scores: Scores, groups: dict[str, list[str]], measures: Sequence[str]) -> Scores:
    """The mean of each measure over the rows of each group. A group is left out if it has no rows, or one
    without scores.

    >>> averages({"de": {"MAP": 0.25}, "fr": {"MAP": 0.75}}, {"average": ["de", "fr"], "held out": []}, ["MAP"])
    {'average': {'MAP': 0.5}}
    """
    return {
        group: {measure: float(np.mean([scores[row][measure] for row in rows])) for measure in measures}
        for group, rows in groups.items()
        if rows and all(row in scores for row in rows)
    }


def environment() -> dict[str, Any]:
    """What numbers and speeds may depend on beside the recipe."""
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "cpu": _cpu(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "threads": torch.get_num_threads(),
    }


@cache  # all installed packages are looked through
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    """The processor's name, which Python itself does not tell on Linux."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
