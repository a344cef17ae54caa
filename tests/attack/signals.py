"""Each command gets SIGINT or SIGTERM at a random moment, also while it imports. It says so in one line, and the next
run completes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.attack.commands import SECONDS_TO_REFUSE
from tests.attack.runs import arguments, saved_hmde, workshop
from tests.paths import REPOSITORY

SECONDS_OF_A_COMMAND = 12.0  # of its imports and of its work
ENDS = {signal.SIGINT: (130, -signal.SIGINT), signal.SIGTERM: (143, -signal.SIGTERM)}


def interrupt(random: Random, folder: Path) -> str:
    """One command, stopped once and then run to its end."""
    name = random.choice([*COMMANDS])
    argv, made = COMMANDS[name](folder)
    number = random.choice([*ENDS])
    process = _start(argv, folder)
    time.sleep(random.uniform(0, SECONDS_OF_A_COMMAND))
    process.send_signal(number)
    stopped = process.communicate(timeout=10 * SECONDS_TO_REFUSE)[0]
    if process.returncode:  # else it had ended before
        assert process.returncode in ENDS[number], f"{name}: exit code {process.returncode} after {stopped}"
        assert "Traceback" not in stopped, f"{name}: {stopped}"
        assert made.is_dir() or not made.exists(), f"{name}: {made} is no folder"
    if name == "pretrain":
        resumable = any(Path(f"{made}-training", "checkpoints").glob("step-????????"))
        argv = [*argv, "--resume", str(resumable and not made.exists()).lower()]
    if not (name == "pretrain" and made.exists()):
        process = _start(argv, folder)
        said = process.communicate(timeout=10 * SECONDS_TO_REFUSE)[0]
        assert process.returncode == 0, f"{name} does not complete after {number.name}: {said}"
    assert made.exists()
    left = [path.name for path in folder.iterdir() if path.name.endswith((".partial", ".replaced", ".lock"))]
    assert not left, f"{name} leaves {left}"
    return f"{name}, {number.name}: {stopped[-80:]!r}"


def _start(argv: list[str], folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "ACCELERATE_USE_CPU": "true"}
    stderr = subprocess.STDOUT
    return subprocess.Popen(
        [sys.executable, *argv], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
    )


def _documents(folder: Path) -> Path:
    rows = [{"id": f"d{number}", "text": f"The cat {number} sat. It was warm."} for number in range(200)]
    (folder / "documents.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder / "documents.jsonl"


def _index(folder: Path) -> tuple[list[str], Path]:
    options = ["--model", str(saved_hmde()), "--dtype", "float32"]
    return ["-m", "search", "index", str(_documents(folder)), str(folder / "index"), *options], folder / "index"


def _encode(folder: Path) -> tuple[list[str], Path]:
    given = {"model": saved_hmde(), "documents": _documents(folder), "output": folder / "out", "dtype": "float32"}
    options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    return ["-m", "search.encode_collection", *options, "--documents_per_shard", "16"], folder / "out"


def _corpus(folder: Path) -> tuple[list[str], Path]:
    articles = shutil.copytree(workshop() / "articles", folder / "articles")
    options = ["--articles", str(articles), "--output", str(folder / "corpus"), "--languages", '["en", "de", "fr"]']
    return ["-m", "training.corpus", *options], folder / "corpus"


def _pretrain(folder: Path) -> tuple[list[str], Path]:
    corpus = shutil.copytree(workshop() / "corpus", folder / "corpus")
    return [str(REPOSITORY / "training" / "pretrain.py"), *arguments(folder / "model", corpus)], folder / "model"


def _average(folder: Path) -> tuple[list[str], Path]:
    models = json.dumps([str(saved_hmde())] * 2)
    return ["-m", "release_tools.average", "--models", models, "--output", str(folder / "mean")], folder / "mean"


def _evaluate(folder: Path) -> tuple[list[str], Path]:
    data = folder / "data"
    (data / "docs").mkdir(parents=True)
    documents = [{"doc_id": f"d{number}", "text": f"Cat {number}."} for number in range(50)]
    (data / "docs" / "en.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (data / "queries").mkdir()
    (data / "queries" / "en.tsv").write_text("".join(f"q{number}\tCat {number}?\n" for number in range(9)))
    (data / "qrels.tsv").write_text("".join(f"q{number}\t0\td{number}\t1\n" for number in range(9)))
    recipe = {
        "output": str(folder / "results"),
        "systems": {"hmde": {"kind": "hmde", "model": str(saved_hmde())}},
        "retrieval": {"cats": {"data": str(data), "pairs": ["en-en"]}},
    }
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    return ["-m", "evaluation", "--config", str(folder / "recipe.yaml")], folder / "results"


COMMANDS: dict[str, Callable[[Path], tuple[list[str], Path]]] = {
    "index": _index,
    "encode": _encode,
    "corpus": _corpus,
    "pretrain": _pretrain,
    "average": _average,
    "evaluate": _evaluate,
}
