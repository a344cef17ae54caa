"""Progress bars with a name and an end."""

from __future__ import annotations

from collections.abc import Callable

from tqdm.auto import tqdm

Advance = Callable[[int], object]


def progress_bar(name: str, total: int | None, unit: str = "text", delay: float = 0) -> tqdm:
    """A bar on stderr. Without a name, or if stderr is no terminal, there is no bar.

    Args:
        name: what is done, and for what.
        total: how many there are to do; None if that is not known.
        unit: of `total`; B for bytes.
        delay: seconds before the bar appears, for what is often too quick for one.
    """
    return tqdm(desc=name, total=total, unit=unit, unit_scale=unit == "B", delay=delay, disable=None if name else True)


def no_bar(count: int) -> None:
    """Stands in for a bar's `update`."""
