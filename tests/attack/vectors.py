"""Two runs on one corpus need the same sentence vectors at the same time, and one of them may be killed."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from random import Random

from tests.attack.runs import arguments, interrupt, run, start, undisturbed, weights, workshop


def share(random: Random, folder: Path) -> str:
    expected, seconds = undisturbed("sentence_encoder")
    corpus = shutil.copytree(workshop() / "corpus", folder / "corpus")
    outputs = [folder / "one", folder / "other"]
    first, second = (
        start(arguments(output, corpus, freeze="sentence_encoder"), folder / f"{output.name}.log") for output in outputs
    )
    killed = random.random() < 0.7 and interrupt(first, random, seconds, signal.SIGKILL)
    first.join()
    second.join()
    assert second.exitcode == 0, (folder / "other.log").read_text()
    if killed:
        shutil.rmtree(folder / "one-training", ignore_errors=True)
        assert run(arguments(outputs[0], corpus, freeze="sentence_encoder"), folder / "again.log") == 0
    for output in outputs:
        assert weights(output) == expected, f"{output.name} was trained on other vectors"
    return "one killed" if killed else "none killed"
