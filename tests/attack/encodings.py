"""`python -m search.encode` by one or two processes, killed, over documents that change and damaged shards."""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from pathlib import Path
from random import Random

import numpy as np
import pyarrow.parquet as pq

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from search import encode
from search.documents import Document
from tests.attack.runs import finish, interrupt, last_words, run, saved_hmde, start
from tests.attack.texts import text

SECONDS = 3.0  # that a run takes, about


def kill(random: Random, folder: Path) -> str:
    """kill -9, a damaged shard, other documents: the last run leaves one right embedding of each document."""
    documents = {f"d{number}": text(random) for number in range(random.randint(1, 60))}
    log, argv = folder / "log", _arguments(folder)
    for _ in range(random.randint(1, 3)):
        _write(documents, folder / "documents.jsonl")
        processes = start(argv, log, random.randint(1, 2), encode.main)
        interrupt(processes, random, SECONDS, signal.SIGKILL)
        shards = sorted((folder / "out").glob("*.parquet"))
        if shards and random.random() < 0.5:
            _damage(random, random.choice(shards))
        if random.random() < 0.5:
            for name in random.sample(sorted(documents), len(documents) // 4):
                documents[name] = text(random)
    _write(documents, folder / "documents.jsonl")
    assert run(argv, log, random.randint(1, 2), encode.main) == 0, log.read_text()
    _check(folder, documents)
    return f"{len(documents)} documents"


def change(random: Random, folder: Path) -> str:
    """The documents change while they are encoded. The run refuses, or its embeddings are those of one state."""
    states = [{f"d{number}": text(random) for number in range(random.randint(20, 60))} for _ in range(2)]
    file, log = folder / "documents.jsonl", folder / "log"
    _write(states[0], file)
    processes = start(_arguments(folder), log, random.randint(1, 2), encode.main)
    time.sleep(random.uniform(0, SECONDS))
    _write(states[1], file)
    if finish(processes):
        assert last_words(log).startswith("ValueError: "), log.read_text()
        assert run(_arguments(folder), log, 1, encode.main) == 0, log.read_text()
        _check(folder, states[1])
        return "refused"
    ids = set(_written(folder))
    _check(folder, next(state for state in states if {*state} == ids))
    return "embeddings of one state"


def _arguments(folder: Path) -> list[str]:
    given = {"model": saved_hmde(), "documents": folder / "documents.jsonl", "output": folder / "out"}
    return [f"--{name}={value}" for name, value in (given | {"documents_per_shard": 8, "dtype": "float32"}).items()]


def _write(documents: dict[str, str], file: Path) -> None:
    lines = "".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in documents.items())
    file.with_suffix(".new").write_text(lines)
    os.replace(file.with_suffix(".new"), file)


def _damage(random: Random, shard: Path) -> None:
    content = bytearray(shard.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    shard.write_bytes(content)


def _written(folder: Path) -> dict[str, np.ndarray]:
    rows: dict[str, np.ndarray] = {}
    for shard in (folder / "out").glob("*.parquet"):
        table = pq.read_table(shard)
        ids = table["id"].to_pylist()
        assert not rows.keys() & ids, "a document was written twice"
        rows |= zip(ids, table["embedding"].to_numpy())
    return rows


@functools.cache
def _model() -> tuple[HMDEForDocumentEmbedding, HMDETokenizer]:
    return HMDEForDocumentEmbedding.from_pretrained(saved_hmde()), HMDETokenizer.from_pretrained(saved_hmde())


def _check(folder: Path, documents: dict[str, str]) -> None:
    rows, (model, tokenizer) = _written(folder), _model()
    assert rows.keys() == documents.keys()
    texts = [Document(name, "", None, text).text for name, text in documents.items()]  # without lone surrogates
    expected = model.encode_documents(texts, tokenizer)
    np.testing.assert_allclose(np.stack([rows[name] for name in documents]), expected, atol=1e-4)
    names = {path.name for path in (folder / "out").iterdir()}
    assert all(name == "recipe.json" or name.startswith(("shard-", ".")) for name in names), names
