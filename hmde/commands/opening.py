"""An index as `hmde query` and `hmde serve` open it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hmde.commands.options import QueryOptions, ServeOptions

if TYPE_CHECKING:
    from hmde.index.index import Index


def opened(options: QueryOptions | ServeOptions) -> Index:
    """
    Raises:
        IndexNotFound: there is no index.
    """
    from hmde.index.index import Index
    from hmde.index.snapshot import open_snapshot

    without_bars()
    open_snapshot(options.index)  # so that none is made
    return Index(options.index, options.model, dtype=options.dtype)


def without_bars() -> None:
    """Keeps transformers from showing how it loads weights."""
    from transformers.utils import logging

    logging.disable_progress_bar()
