"""Tables of documents that take more memory or time than they have bytes, or whose names command the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from search import encode_collection
from tests.attack.commands import GIBIBYTE, call, check_words
from tests.attack.runs import saved_hmde
from tests.attack.texts import ALPHABETS

ESCAPE = "\x1b]52;c;aGk=\x07\x9b2J"
LONG = 200_000_000  # characters


def encode(random: Random, folder: Path) -> str:
    """One hostile table is encoded, or refused in one line that names it, with less than a GiB and in a minute."""
    kind = random.choice([*KINDS])
    file = KINDS[kind](random, folder / f"ta{random.choice(['', ESCAPE])}ble")
    argv = ["--model", str(saved_hmde()), "--documents", str(file), "--output", str(folder / "out")]
    column = random.choice(["id", "id", f"id{ESCAPE}"])
    ended = call(encode_collection.main, [*argv, "--columns.id", column, "--dtype", "float32"], folder / "log")
    check_words(ended)
    assert ended.memory < 1.2 * GIBIBYTE, f"{ended.memory >> 10} MiB for {kind}"
    if ended.code:
        assert str(folder) in ended.last_line, f"{ended.last_line} names no file ({kind})"
    return f"{kind}: {ended.last_line[:200]}, {ended.seconds:.0f} s, {ended.memory >> 10} MiB"


def _parquet_bomb(random: Random, path: Path) -> Path:
    """A few hundred bytes that stand for as many rows, each with the same text of megabytes."""
    count = 2000
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["cat. " * 2**19]))
    table = pa.table({"id": pa.array(range(count)).cast(pa.string()), "text": texts, "other": texts})
    with path.with_suffix(".parquet").open("wb") as file:
        pq.write_table(table.slice(0, random.choice([20, 60])), file, compression="zstd")
    return path.with_suffix(".parquet")


def _json_bomb(random: Random, path: Path) -> Path:
    value = random.choice(["[]", "{}", "1234", '{"a":[]}'])
    many = ",".join([value] * (LONG // 10 // (len(value) + 1)))
    return _line(path, f'{{"id": "a", "text": "A cat.", "other": [{many}]}}')


def _deep(random: Random, path: Path) -> Path:
    return _line(path, random.choice(["[", '{"text":']) * 1_000_000)


def _long(random: Random, path: Path) -> Path:
    """A line, or a word, that is very long."""
    piece = random.choice(["a", "猫", "The cat sat. ", "a ", '\\"', "\\u0000", *ALPHABETS[3:9]])
    return _line(path, f'{{"id": "a", "text": "{piece * (LONG // 4 // len(piece.encode()))}"}}')


def _too_long(random: Random, path: Path) -> Path:
    with path.with_suffix(".jsonl").open("wb") as file:
        file.write(b'{"id": "a", "text": "')
        file.seek(2**31)  # a sparse file: what lies between is zero
        file.write(b'"}\n')
    return path.with_suffix(".jsonl")


def _strange(random: Random, path: Path) -> Path:
    """Rows whose ids, texts and columns are of other kinds, and command the terminal."""
    values: list[Any] = [None, True, 1.5, 10**30, -1, "9" * 5000, ESCAPE, [ESCAPE], {ESCAPE: 1}, "\ud800", "", "../a"]
    rows = []
    for _ in range(random.randint(1, 4)):
        row = {"id": random.choice(values), "text": random.choice(["A cat.", random.choice(values)])}
        rows.append(row | {random.choice(["title", "language", ESCAPE]): random.choice(values)})
    return _line(path, "\n".join(map(json.dumps, rows)))


def _line(path: Path, line: str) -> Path:
    path.with_suffix(".jsonl").write_bytes(line.encode("utf-8", "surrogatepass"))
    return path.with_suffix(".jsonl")


KINDS = {
    "a Parquet bomb": _parquet_bomb,
    "a JSON bomb": _json_bomb,
    "deep JSON": _deep,
    "a long text": _long,
    "a line that does not end": _too_long,
    "strange values": _strange,
    "more strange values": _strange,
}
