"""Folders that are there whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(folder: str | Path) -> Iterator[Path]:
    """A temporary folder beside `folder` that takes its name, and its place, when the block ends without an error."""
    folder = Path(folder)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)


@contextmanager
def file_written_whole(path: str | Path) -> Iterator[Path]:
    """A temporary file name beside `path` whose file takes its name when the block ends without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.stem}.partial{path.suffix}")
    yield partial
    os.replace(partial, path)
