"""The finished steps of a command, kept in `<output>.steps` until the output is whole. A stopped run goes on there."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from tqdm import tqdm

from common.files import write_json
from common.fingerprints import digest, fingerprint_of_folder
from training.corpus.progress import SECONDS


def open_steps(output: Path, recipe: dict[str, Any], inputs: list[Path]) -> Path:
    """The folder of the steps, emptied where they are of another recipe, of other inputs or of other code.

    Raises:
        ValueError: the folder is of something else.
    """
    folder = output.with_name(output.name + ".steps")
    mark = {
        "recipe": recipe,
        "inputs": [[str(path), digest(path)] for path in tqdm(inputs, "checksums", delay=SECONDS, disable=None)],
        "code": fingerprint_of_folder(Path(__file__).parent, "*.py"),
    }
    path = folder / "mark.json"
    if not path.exists() or json.loads(path.read_text(encoding="utf-8")) != mark:
        others = list(folder.glob("*"))
        if others and not any("mark" in other.name for other in others):
            raise ValueError(f"{folder} is no folder of this command, which keeps steps there; rename or remove it")
        remove_steps(folder)
        write_json(path, mark)
    return folder


def remove_steps(folder: Path) -> None:
    """Renames the folder first: what is left of a removal that was stopped is not taken for finished steps."""
    removed = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(removed, ignore_errors=True)
    if folder.exists():
        os.replace(folder, removed)
        shutil.rmtree(removed)


def check_memory_limit(memory_limit: str) -> None:
    """
    Raises:
        ValueError: it is no size.
    """
    with duckdb.connect() as connection:
        try:
            connection.execute("SET memory_limit = $1", [memory_limit])
        except duckdb.Error as error:
            raise ValueError(f"memory_limit is {memory_limit!r}, no size as 4GB: {error}") from None


@contextmanager
def connected(steps: Path, memory_limit: str, threads: int | None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory, which goes to disk, in the folder of the steps, for what is more than the limit."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "temp_directory": str(steps / "spilled"),
    }
    if threads is not None:
        config["threads"] = threads
    with duckdb.connect(config=config) as connection:
        yield connection


@contextmanager
def shortage_explained(output: Path) -> Iterator[None]:
    """
    Raises:
        OSError: the disk is full, with the way on.
        ValueError: the memory limit is too low.
    """
    way_on = "run the command again; it goes on from the last finished step"
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"memory_limit is too low ({reason}); raise it and {way_on}") from None
    except (OSError, duckdb.Error) as error:
        if getattr(error, "errno", None) != errno.ENOSPC and "No space left" not in str(error):
            raise
        message = f"the disk of {output} is full ({error}); free some space and {way_on}"
        raise OSError(errno.ENOSPC, message) from None
