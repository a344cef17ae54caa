"""Progress bars with a name and an end."""

from __future__ import annotations

from collections.abc import Callable

from tqdm.auto import tqdm

Advance = Callable[[int], object]


def progress_bar(name: str, total: int | None, unit: str = "text", delay: float = 0) -> tqdm:
    """A bar on stderr. Without a name, or if stderr is no terminal, there is no bar.

    Args:
        name: the step, shown before the bar.
        total: number of units; None if it is not known.
        unit: name of a unit; B for bytes.
        delay: seconds before the bar appears, so that quick steps show none.
    """
    return tqdm(desc=name, total=total, unit=unit, unit_scale=unit == "B", delay=delay, disable=None if name else True)


def no_bar(count: int) -> None:
    """Stands in for a bar's `update`."""
