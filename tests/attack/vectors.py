"""Two runs need the same sentence vectors, or document vectors, at the same time, and one of them may be killed."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from random import Random

import numpy as np

from evaluation import vectors
from evaluation.datasets.files import DocumentFile
from tests.attack.runs import arguments, finish, interrupt, run, start, undisturbed, weights, workshop
from tests.pretraining import start_processes


def share(random: Random, folder: Path) -> str:
    expected, seconds = undisturbed("sentence_encoder", 1)
    corpus = shutil.copytree(workshop() / "corpus", folder / "corpus")
    outputs = [folder / "one", folder / "other"]
    first, second = (
        start(arguments(output, corpus, freeze="sentence_encoder"), folder / f"{output.name}.log") for output in outputs
    )
    killed = random.random() < 0.7 and interrupt(first, random, seconds, signal.SIGKILL)
    finish(first)
    assert finish(second) == 0, (folder / "other.log").read_text()
    if killed:
        shutil.rmtree(folder / "one-training", ignore_errors=True)
        assert run(arguments(outputs[0], corpus, freeze="sentence_encoder"), folder / "again.log") == 0
    for output in outputs:
        assert weights(output) == expected, f"{output.name} was trained on other vectors"
    return "one killed" if killed else "none killed"


def cache(random: Random, folder: Path) -> str:
    """The evaluation's vectors: two at once, kill -9, documents that change. What is kept is right."""
    file = folder / "en.jsonl"
    numbers = _write(random, file)
    vectors.DOCUMENTS_AT_ONCE = random.randint(1, 9)

    def work(_rank: int) -> None:
        try:
            found = vectors.cached_vectors(_encode, DocumentFile(file), folder / "cache", "one")
            assert found[:, 1].all(), "vectors that were never computed"
        except ValueError as error:
            if "changed while they were encoded" not in str(error):
                raise

    for _ in range(random.randint(1, 3)):
        processes = [*start_processes(1, work), *start_processes(1, work)]
        if random.random() < 0.3:
            time.sleep(random.uniform(0, 0.5))
            numbers = _write(random, file)
        if random.random() < 0.7:
            interrupt(random.sample(processes, 1), random, 0.5, signal.SIGKILL)
        assert {finish([process]) for process in processes} <= {0, -signal.SIGKILL}
    found = vectors.cached_vectors(_encode, DocumentFile(file), folder / "cache", "one")
    assert found.tolist() == [[number, 1.0] for number in numbers]
    return f"{len(numbers)} documents"


def _write(random: Random, file: Path) -> list[int]:
    numbers = random.choices(range(1000), k=random.randint(1, 60))
    rows = [json.dumps({"doc_id": f"d{index}", "text": str(number)}) + "\n" for index, number in enumerate(numbers)]
    file.write_text("".join(rows))
    return numbers


def _encode(texts: list[str]) -> np.ndarray:
    time.sleep(0.01)
    return np.array([[float(text), 1.0] for text in texts], np.float32)
