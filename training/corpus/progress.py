"""The name and the progress of a step that takes long, on stderr, only on a terminal and only after some seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import duckdb
from tqdm import tqdm

SECONDS = 5.0  # a step that is faster shows nothing


@contextmanager
def progress(connection: duckdb.DuckDBPyConnection, name: str) -> Iterator[None]:
    """Shows, while the block runs, how much of its present query is done. A step of several queries starts anew."""
    finished = Event()

    def show() -> None:
        if finished.wait(SECONDS):
            return
        with tqdm(desc=name, total=100, bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}") as bar:
            while not finished.wait(1):
                bar.n = max(0, connection.query_progress())
                bar.refresh()

    thread = Thread(target=show, daemon=True)
    terminal = sys.stderr.isatty()
    connection.execute(f"SET enable_progress_bar = {terminal}")  # DuckDB then counts; in a notebook it does unasked
    connection.execute("SET enable_progress_bar_print = false")  # on stdout, among the statistics
    if terminal:
        thread.start()
    try:
        yield
    finally:
        finished.set()
        if terminal:
            thread.join()
