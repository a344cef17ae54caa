"""Atomic writes: a file or folder is complete or absent. Every file that this project writes is written here.

A writer holds the lock of its path, so one process writes and the others wait. It writes under a temporary name beside
the path and then renames. The next writer of the path removes what a killed process left behind.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

logger = logging.getLogger(__name__)

WORDS_OF_A_FULL_DISK = ("No space left", "PytorchStreamWriter failed writing")


@contextmanager
def locked(path: str | Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a path, `.<name>.lock` beside it; the folder is made if need be. The lock of a process that dies
    is released.

    Args:
        path: a file or folder, which need not exist.
        wait: whether to wait for a process that holds the lock, or to raise an error.

    Raises:
        ValueError: another process holds the lock, and `wait` is false.
    """
    path = Path(os.path.abspath(path))
    lock = FileLock(path.with_name(f".{path.name}.lock"), mode=0o666, is_singleton=True)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise ValueError(f"another process is writing {path}; wait for it, or name another output") from None
        logger.warning("another process is writing %s; waiting for it", path)
        lock.acquire()
    try:
        yield
    finally:
        if lock.lock_counter == 1:  # not held by a block around this one
            Path(lock.lock_file).unlink(missing_ok=True)  # while it is held, so who waits for it takes a new file
        lock.release()


def partial_of(path: str | Path) -> Path:
    """The temporary name under which a file or folder is written. It is hidden and has an ending of its own, so no
    pattern for finished files matches what a killed process leaves behind.

    >>> print(partial_of("runs/shard-1.parquet"))
    runs/.shard-1.parquet.partial
    """
    path = Path(path)
    return path.with_name(f".{path.name}.partial")


def files_below(folder: Path, left_out: Callable[[Path], bool], above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """What lies in a folder and in those below and is no folder. Links are followed, but not into a folder above.

    Args:
        left_out: whether a file, or a folder with all that lies in it, is passed over.
        above: the folders in which this one lies.
    """
    above |= {folder.resolve()}
    for path in folder.iterdir():
        if left_out(path):
            continue
        if not path.is_dir():
            yield path
        elif path.resolve() not in above:
            yield from files_below(path, left_out, above)


def check_is_new(output: str | Path) -> None:
    """
    Raises:
        ValueError: something lies there already, or the output has no name.
    """
    if not str(output):
        raise ValueError("output is empty; name a folder to write")
    if Path(output).exists():
        raise ValueError(f"output {output} exists; remove it, or name another folder")


@contextmanager
def full_disk_named(path: str | Path) -> Iterator[None]:
    """Within, a path is written, by libraries too, some of whose errors do not say what.

    Raises:
        OSError: the disk is full; names the path.
    """
    try:
        yield
    except Exception as error:
        if str(path) in str(error) or not any(words in str(error) for words in WORDS_OF_A_FULL_DISK):
            raise
        raise OSError(errno.ENOSPC, f"the disk of {path} is full; make room and run again ({error})") from error


@contextmanager
def folder_written_whole(folder: str | Path) -> Iterator[Path]:
    """A temporary folder beside `folder`. It takes the place of `folder` when the block ends without an error."""
    folder = Path(folder)
    partial = partial_of(folder)
    replaced = folder.with_name(f".{folder.name}.replaced")
    with locked(folder), full_disk_named(folder):
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            yield partial
            for file in partial.rglob("*"):
                if file.is_file():  # safetensors keeps its files from all but their owner; the umask says who may read
                    file.chmod(partial.stat().st_mode & 0o666)
            if folder.exists():
                shutil.rmtree(replaced, ignore_errors=True)
                os.replace(folder, replaced)  # at once, so that no half of it is ever seen
            os.replace(partial, folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            if replaced.exists() and not folder.exists():  # stopped between the two renames
                os.replace(replaced, folder)
            raise
        finally:
            shutil.rmtree(replaced, ignore_errors=True)


@contextmanager
def file_written_whole(path: str | Path) -> Iterator[Path]:
    """A temporary file name beside `path`, whose ending does not tell the format. The file takes the place of `path`
    when the block ends without an error."""
    partial = partial_of(path)
    with locked(path), full_disk_named(path):
        partial.unlink(missing_ok=True)
        try:
            yield partial
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, in a folder that is made if need be."""
    with file_written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: str | Path, content: Any) -> None:
    """Write a JSON file, in a folder that is made if need be."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
