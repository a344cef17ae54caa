"""Tiny pretraining runs to attack: made once, each run in a process of its own."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import tempfile
import time
from pathlib import Path
from random import Random

from accelerate.state import AcceleratorState
from transformers import BertConfig, BertModel

from tests.conftest import SIZES, save_encoder, wordpiece_tokenizer
from tests.pretraining import options, write_corpus
from training import pretrain

CONTEXT = multiprocessing.get_context("fork")


@functools.cache
def workshop() -> Path:
    """A folder with a sentence encoder, `labse`, and a corpus, `corpus`."""
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    tokenizer = wordpiece_tokenizer()
    config = BertConfig(**SIZES, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    save_encoder(BertModel(config), tokenizer, folder / "labse")
    write_corpus(folder)
    return folder


def arguments(output: Path, corpus: Path | None = None, **changes: object) -> list[str]:
    """Of a run with dropout, drawn queries and a queue, that saves and evaluates often."""
    defaults = {"query_weight": 1.0, "save_steps": 2, "eval_steps": 2, "max_steps": 6, "queue_size": 6}
    return options(corpus or workshop() / "corpus", workshop() / "labse", output, **(defaults | changes))


def start(argv: list[str], log: Path) -> multiprocessing.Process:
    """A run in a process of its own; what it prints goes to `log`."""

    def work() -> None:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.environ["ACCELERATE_USE_CPU"] = "true"
        AcceleratorState._reset_state(reset_partial_state=True)
        pretrain.main(argv)

    process = CONTEXT.Process(target=work)
    process.start()
    return process


def run(argv: list[str], log: Path) -> int | None:
    process = start(argv, log)
    process.join()
    return process.exitcode


def interrupt(process: multiprocessing.Process, random: Random, seconds: float, number: signal.Signals) -> bool:
    """Send a signal at a random moment of a process that takes so many seconds. Whether it came before the end."""
    time.sleep(random.uniform(0, seconds))
    if process.pid is not None and process.is_alive():
        os.kill(process.pid, number)
    process.join()
    return process.exitcode != 0


def weights(output: Path) -> bytes:
    return (output / "model.safetensors").read_bytes()


@functools.cache
def undisturbed(freeze: str) -> tuple[bytes, float]:
    """The weights of a run that nothing disturbs, and the seconds that it takes."""
    output = workshop() / f"undisturbed-{freeze}"
    began = time.perf_counter()
    assert run(arguments(output, freeze=freeze), workshop() / "log") == 0, (workshop() / "log").read_text()
    return weights(output), time.perf_counter() - began


def last_words(log: Path) -> str:
    """The last line of a log: of a process that refuses, a sentence."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
