"""Plots of scores. Knows no systems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from hmde.common.files import file_written_whole

Colour = tuple[float, ...]


def plot_averages(averages: dict[str, dict[str, float]], colour_of: Mapping[str, Colour], path: Path) -> Path:
    """The average of each system on each task, a panel a task (the form of the paper's figure 2).

    Args:
        averages: by task, then by system.
        colour_of: each system.
        path: of the image.
    """
    systems = {system for scores in averages.values() for system in scores}
    figure = Figure(figsize=(4.5 * len(averages), 1 + 0.3 * len(systems)), layout="constrained")
    for axes, (task, scores) in zip(figure.subplots(1, len(averages), squeeze=False)[0], averages.items()):
        bars = axes.barh(list(scores), list(scores.values()), color=[colour_of[system] for system in scores])
        axes.bar_label(bars, fmt="%.3f", padding=2, fontsize=8)
        axes.set_title(task, fontsize=10)
        axes.invert_yaxis()
        axes.margins(x=0.2)
    return save(figure, path)


def plot_rows(title: str, scores: dict[str, dict[str, float]], colour_of: Mapping[str, Colour], path: Path) -> Path:
    """The scores of each system by row, such as a pair of languages, a dot each.

    Args:
        title: of the plot.
        scores: by system, then by row.
        colour_of: each system.
        path: of the image.
    """
    rows = list(dict.fromkeys(row for system_scores in scores.values() for row in system_scores))
    figure = Figure(figsize=(max(6.0, 0.3 * len(rows)), 4), layout="constrained")
    axes = figure.subplots()
    axes.grid(axis="x", color="0.9")
    for system, system_scores in scores.items():
        values = [system_scores.get(row, np.nan) for row in rows]
        axes.plot(values, "o", markersize=5, label=system, color=colour_of[system], alpha=0.8)
    axes.set_xticks(np.arange(len(rows)), rows, rotation=90 if len(rows) > 12 else 0)
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    return save(figure, path)


def colours(names: Iterable[str]) -> dict[str, Colour]:
    """A colour for each name, such that they can be told apart.

    >>> len(set(colours(["first", "windows", "hmde"]).values()))
    3
    """
    distinct = list(dict.fromkeys(names))
    few, many = mpl.colormaps["tab10"], mpl.colormaps["turbo"]
    return {
        name: few(index) if len(distinct) <= 10 else many((index + 0.5) / len(distinct))
        for index, name in enumerate(distinct)
    }


def save(figure: Figure, path: Path) -> Path:
    with file_written_whole(path) as partial:
        figure.savefig(partial, format=path.suffix[1:], dpi=150)
    return path
