"""Folders of documents with files that are unreadable, cut, of another kind, or named strangely."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from search.documents import Documents
from tests.attack.texts import text

NOBODY = 65534
NAMES = ["a", "ä", "a b", "-rf", "~", "$HOME", "%s", "{0}", "*", "a\nb", "\x1b[2J", "\udcff", ".hidden", "猫" * 60]


def read(random: Random, folder: Path) -> str:
    """Every document of every good file is read, or an error names the file that is not good."""
    source = folder / "documents"
    source.mkdir()
    os.chmod(folder, 0o755)
    written = [_write(random, source, name) for name in random.sample(NAMES, random.randint(1, 5))]
    spoilt = _spoil(random, random.choice(written)) if random.random() < 0.7 else ""
    queue = multiprocessing.get_context("fork").SimpleQueue()

    def work() -> None:
        os.seteuid(NOBODY)  # whom modes of files bind
        try:
            queue.put([document.text for document in Documents(source)])
        except ValueError as error:
            queue.put(str(error))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(30)
    if process.is_alive():
        process.kill()
        raise AssertionError(f"reading does not end: {spoilt}")
    assert process.exitcode == 0, f"a raw error: {spoilt}"
    found = queue.get()
    if isinstance(found, str):
        assert spoilt, found
        assert str(source) in found, f"{found!r} does not name the file ({spoilt})"
        return f"refused: {found}"
    if not spoilt:
        expected = sum(1 if path.suffix == ".txt" else 3 for path in written)
        assert len(found) == expected, f"{len(found)} of {expected} documents"
    return f"{len(found)} documents, {spoilt}"


def _write(random: Random, folder: Path, name: str) -> Path:
    path = folder / (name + random.choice([".txt", ".jsonl", ".parquet"]))
    texts = [text(random).encode("utf-8", "replace").decode() for _ in range(3)]
    if path.suffix == ".txt":
        path.write_text(texts[0], encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps({"text": one}) for one in texts))
    else:
        with path.open("wb") as file:  # Arrow takes no names that are no UTF-8
            pq.write_table(pa.table({"text": texts}), file)
    return path


def _spoil(random: Random, path: Path) -> str:
    kind = random.choice(["unreadable", "cut", "changed", "empty", "folder", "pipe", "dangling", "loop"])
    content = bytearray(path.read_bytes())
    if kind == "unreadable":
        path.chmod(0)
    elif kind == "cut":
        path.write_bytes(content[: random.randrange(len(content) + 1)])
    elif kind == "changed" and content:
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        path.write_bytes(content)
    elif kind == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        if kind == "folder":
            path.mkdir(0)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(path if kind == "loop" else path.with_name("nothing"))
    return f"{path.name!r} {kind}"
