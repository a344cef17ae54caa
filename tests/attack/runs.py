"""Tiny pretraining runs to attack: made once, each run in a process of its own."""

from __future__ import annotations

import faulthandler
import functools
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from multiprocessing.context import ForkProcess
from pathlib import Path
from random import Random

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.pretraining import options, start_processes, write_corpus
from tests.tiny_encoders import save_labse
from training import pretrain

SECONDS_OF_A_LAUNCHER = 30
SECONDS_TO_END = 600  # on a machine that has much else to do


@functools.cache
def workshop() -> Path:
    """A folder with a sentence encoder, `labse`, and a corpus, `corpus`."""
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    save_labse(folder / "labse")
    write_corpus(folder)
    return folder


@functools.cache
def saved_hmde() -> Path:
    """A folder with an untrained HMDE."""
    folder, encoder = workshop() / "hmde", str(workshop() / "labse")
    HMDEForDocumentEmbedding.from_sentence_encoder(encoder, num_document_attention_heads=4).save_pretrained(folder)
    HMDETokenizer.from_sentence_encoder(encoder).save_pretrained(folder)
    return folder


def arguments(output: Path, corpus: Path | None = None, **changes: object) -> list[str]:
    """Options of a run with dropout and drawn queries that saves and evaluates often."""
    defaults = {"losses.queries.weight": 1.0, "save_steps": 2, "eval_steps": 2, "max_steps": 6}
    return options(corpus or workshop() / "corpus", workshop() / "labse", output, **(defaults | changes))


def start(
    argv: list[str], log: Path, number: int = 1, main: Callable[[list[str]], None] = pretrain.main
) -> list[ForkProcess]:
    """A run in processes of its own; what they print goes to `log`."""

    def work(_rank: int) -> None:
        faulthandler.enable(os.dup(2))
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        main(argv)

    return start_processes(number, work)


def finish(processes: list[ForkProcess]) -> int:
    """0, or an exit code that is not. When one has failed, those that wait for it are ended, as a launcher does.
    Processes that do not end although none has failed are one failure more."""
    alive, bereaved = 0.0, 0.0
    while any(process.is_alive() for process in processes):
        time.sleep(0.1)
        if any(process.exitcode for process in processes):
            bereaved += 0.1
        else:
            alive += 0.1
        if bereaved > SECONDS_OF_A_LAUNCHER:
            for process in processes:
                process.kill()
        elif alive > SECONDS_TO_END:
            for process in processes:
                os.kill(process.pid or 0, signal.SIGABRT)  # it prints the stacks of its threads
                process.join()
            raise AssertionError(f"{len(processes)} processes have not ended after {SECONDS_TO_END} s")
    return next((process.exitcode for process in processes if process.exitcode), 0)


def run(argv: list[str], log: Path, number: int = 1, main: Callable[[list[str]], None] = pretrain.main) -> int:
    return finish(start(argv, log, number, main))


def interrupt(processes: list[ForkProcess], random: Random, seconds: float, number: signal.Signals) -> bool:
    """Send a signal to some of the processes, at a random moment of a run that takes so many seconds. Whether it came
    before the end."""
    time.sleep(random.uniform(0, seconds))
    for process in random.sample(processes, random.randint(1, len(processes))):
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, number)
    return finish(processes) != 0


def weights(output: Path) -> bytes:
    return (output / "model.safetensors").read_bytes()


@functools.cache
def undisturbed(freeze: str, number: int) -> tuple[bytes, float]:
    """The weights of a run of so many processes that nothing disturbs, and the seconds that it takes."""
    output = workshop() / f"undisturbed-{freeze}-{number}"
    corpus = shutil.copytree(workshop() / "corpus", workshop() / f"corpus-{freeze}-{number}")
    argv = arguments(output, corpus, freeze=freeze, batch_size=4 // number)
    began = time.perf_counter()
    assert run(argv, workshop() / "log", number) == 0, (workshop() / "log").read_text()
    return weights(output), time.perf_counter() - began


def last_words(log: Path) -> str:
    """The last line of a log: of a process that refuses, a sentence."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
