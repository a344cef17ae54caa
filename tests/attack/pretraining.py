"""Pretraining is killed at random moments: while it saves, keeps sentence vectors, evaluates, finishes."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path
from random import Random

from tests.attack.runs import arguments, finish, interrupt, last_words, run, start, undisturbed, weights, workshop

EXIT_CODE_OF_SIGTERM = 143


def kill(random: Random, folder: Path) -> str:
    """kill -9, up to three times in one run. It ends with the weights of a run that nothing disturbs."""
    return _disturb(random, folder, signal.SIGKILL)


def kill_of_two(random: Random, folder: Path) -> str:
    """kill -9 of one of two processes, or of both; of the other too, if it waits. A last run has the same weights."""
    return _disturb(random, folder, signal.SIGKILL, processes=2)


def two_into_one(random: Random, folder: Path) -> str:
    """Two runs into one output, and one may be killed. Neither trains on what the other wrote, and one refuses."""
    expected, seconds = undisturbed("nothing", 1)
    output, logs = folder / "model", [folder / "one.log", folder / "other.log"]
    first = start(arguments(output), logs[0])
    time.sleep(random.uniform(0, 1.2 * seconds) if random.random() < 0.7 else 0)
    second = start(arguments(output), logs[1])
    if random.random() < 0.5:
        interrupt(random.choice([first, second]), random, seconds, signal.SIGKILL)
    codes = [finish(first), finish(second)]
    for code, log in zip(codes, logs):
        assert code in (0, -signal.SIGKILL) or last_words(log).startswith("ValueError: "), log.read_text()
    if 0 not in codes:
        assert run(_arguments(output, workshop() / "corpus", "nothing", 1), folder / "log") == 0, (
            folder / "log"
        ).read_text()
    assert weights(output) == expected, "the weights are not those of one run"
    return f"exit codes {codes}"


def ask_to_stop(random: Random, folder: Path) -> str:
    """SIGTERM or SIGINT. What a run leaves is gone on from, and ends with the same weights."""
    return _disturb(random, folder, random.choice([signal.SIGTERM, signal.SIGINT]))


def _disturb(random: Random, folder: Path, number: signal.Signals, processes: int = 1) -> str:
    freeze = random.choice(["nothing", "sentence_encoder"])
    expected, seconds = undisturbed(freeze, processes)
    corpus = shutil.copytree(workshop() / "corpus", folder / "corpus")  # its sentence vectors are not kept yet
    output, log = folder / "model", folder / "log"
    moments = random.randint(1, 3)
    for _ in range(moments):
        started = start(_arguments(output, corpus, freeze, processes), log, processes)
        interrupted = interrupt(started, random, seconds, number)
        _check_folders(folder)
        if not interrupted:
            break
    if not output.exists():
        assert run(_arguments(output, corpus, freeze, processes), log, processes) == 0, log.read_text()
    assert weights(output) == expected, "the weights are not those of an undisturbed run"
    return f"{number.name} up to {moments} times, freeze {freeze}: {last_words(log)}"


def _arguments(output: Path, corpus: Path, freeze: str, processes: int) -> list[str]:
    resumable = any(Path(f"{output}-training", "checkpoints").glob("step-????????"))
    batch_size = 4 // processes
    return arguments(output, corpus, freeze=freeze, batch_size=batch_size, resume=str(resumable).lower())


def _check_folders(folder: Path) -> None:
    """Whatever has its final name is whole."""
    for name in ("model", "model-training/best"):
        if (folder / name).exists():
            names = {path.name for path in (folder / name).iterdir()}
            assert {"model.safetensors", "config.json", "tokenizer.json"} <= names, f"{name} holds {names}"
    for checkpoint in folder.glob("model-training/checkpoints/step-????????"):
        assert (checkpoint / "manifest.json").exists(), f"{checkpoint} has no manifest"
