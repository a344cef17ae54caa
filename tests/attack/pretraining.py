"""Pretraining is killed at random moments: while it saves, keeps sentence vectors, evaluates, finishes."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from random import Random

from tests.attack.runs import arguments, interrupt, last_words, run, start, undisturbed, weights, workshop

EXIT_CODE_OF_SIGTERM = 143


def kill(random: Random, folder: Path) -> str:
    """kill -9, up to three times in one run. It ends with the weights of a run that nothing disturbs."""
    return _disturb(random, folder, signal.SIGKILL)


def ask_to_stop(random: Random, folder: Path) -> str:
    """SIGTERM or SIGINT. What a run leaves is gone on from, and ends with the same weights."""
    return _disturb(random, folder, random.choice([signal.SIGTERM, signal.SIGINT]))


def _disturb(random: Random, folder: Path, number: signal.Signals) -> str:
    freeze = random.choice(["nothing", "sentence_encoder"])
    expected, seconds = undisturbed(freeze)
    corpus = shutil.copytree(workshop() / "corpus", folder / "corpus")  # its sentence vectors are not kept yet
    output, log = folder / "model", folder / "log"
    moments = random.randint(1, 3)
    for _ in range(moments):
        interrupted = interrupt(start(_arguments(output, corpus, freeze), log), random, seconds, number)
        _check_folders(folder)
        if not interrupted:
            break
    if not output.exists():
        assert run(_arguments(output, corpus, freeze), log) == 0, log.read_text()
    assert weights(output) == expected, "the weights are not those of an undisturbed run"
    return f"{number.name} up to {moments} times, freeze {freeze}: {last_words(log)}"


def _arguments(output: Path, corpus: Path, freeze: str) -> list[str]:
    resumable = any(Path(f"{output}-training", "checkpoints").glob("step-????????"))
    return arguments(output, corpus, freeze=freeze, resume=str(resumable).lower())


def _check_folders(folder: Path) -> None:
    """Whatever has its final name is whole."""
    for name in ("model", "model-training/best"):
        if (folder / name).exists():
            names = {path.name for path in (folder / name).iterdir()}
            assert {"model.safetensors", "config.json", "tokenizer.json"} <= names, f"{name} holds {names}"
    for checkpoint in folder.glob("model-training/checkpoints/step-????????"):
        assert (checkpoint / "manifest.json").exists(), f"{checkpoint} has no manifest"
