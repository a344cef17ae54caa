"""A tiny corpus, and pretraining runs on it in processes of their own."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from accelerate import Accelerator, DistributedType, PartialState
from accelerate.state import AcceleratorState

from training import corpus
from training.loop.distributed import whole

SENTENCES = {
    "en": [
        "The {0} {0} {0} is warm.",
        "The {0} sat there.",
        "See the {0} {0}!",
        "It was on the mat.",
        "Did {0} sit {0}?",
    ],
    "de": ["Die {0} {0} {0} ist warm.", "Sie sah {0}.", "Der Hund: {0} {0}!", "Sie lag da.", "Sah {0} die {0}?"],
    "fr": ["Le {0} {0} {0} dort.", "Il dort: {0}.", "Il est {0} {0}!", "Le chat, le chat.", "Dort {0}, {0}?"],
}


def write_corpus(folder: Path, number_of_concepts: int = 12) -> Path:
    """A few concepts in three languages, as `python -m training.corpus` leaves them."""
    (folder / "articles").mkdir()
    for language, sentences in SENTENCES.items():
        rows = []
        for number in range(number_of_concepts):
            name = "{0}a{0}a".format(chr(ord("a") + number))  # without a vowel, it would be an abbreviation
            rows.append(
                {
                    "concept_id": f"Q{number}",
                    "language": language,
                    "title": f"{name} cat",
                    "text": " ".join(sentences).format(name),
                    "categories": ["even" if number % 2 else "odd", "all"],
                    "source": "test",
                    "license": "CC0-1.0",
                    "split": "dev" if number > 8 else "train",
                }
            )
        (folder / "articles" / f"{language}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    options = ["--articles", str(folder / "articles"), "--output", str(folder / "corpus")]
    corpus.main([*options, "--languages", '["en", "de", "fr"]'])
    return folder / "corpus"


def options(corpus_folder: Path, encoder: Path, output: Path, **changes: object) -> list[str]:
    values: dict[str, object] = {
        "corpus": corpus_folder,
        "output": output,
        "sentence_encoder": encoder,
        "architecture": '{"num_document_attention_heads": 4, "document_intermediate_size": 32, "max_sentences": 4}',
        "batch_size": 4,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-3,
        "warmup_steps": 2,
        "epochs": 3,
        "eval_steps": 4,
        "eval_concepts": 3,
        "save_steps": 4,
        "log_steps": 1,
    }
    return as_arguments(values | changes)


def as_arguments(options: dict[str, Any]) -> list[str]:
    """Options as a command line has them."""
    return [part for name, value in options.items() for part in (f"--{name}", str(value))]


# What makes two processes of `in_processes` shard their weights.
FSDP2 = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": "NO_WRAP"}


def let_fsdp_use_the_cpu() -> None:
    """From now on in this process. Accelerate knows FSDP on GPUs only, and on a CPU takes DDP in its place."""
    dist.init_process_group("gloo")
    PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.MULTI_GPU)
    PartialState.set_device = lambda state: setattr(state, "device", torch.device("cpu"))


def start_processes(number: int, work: Callable[[int], None], **environment: str) -> list[ForkProcess]:
    """Start to do `work(rank)` in as many processes, connected by gloo if there are several."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = str(found.getsockname()[1])

    def start(rank: int) -> None:
        AcceleratorState._reset_state(reset_partial_state=True)
        os.environ |= {"ACCELERATE_USE_CPU": "true", **environment}
        if number > 1:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(number)}
            os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
        if environment.get("ACCELERATE_USE_FSDP") == "true":
            let_fsdp_use_the_cpu()
        work(rank)
        if dist.is_initialized():
            dist.destroy_process_group()

    processes = [multiprocessing.get_context("fork").Process(target=start, args=(rank,)) for rank in range(number)]
    for process in processes:
        process.start()
    return processes


def in_processes(number: int, work: Callable[[int], None], **environment: str) -> list[int | None]:
    """Do `work(rank)` in as many processes, connected by gloo if there are several. Returns their exit codes."""
    processes = start_processes(number, work, **environment)
    for process in processes:
        process.join(timeout=600)  # seconds; other programs may take the cores
        if process.is_alive():
            process.kill()
            process.join()
    return [process.exitcode for process in processes]


def gradients(
    main: Callable[[list[str]], None],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    arguments: list[str],
    folder: Path,
    **environment: str,
) -> list[dict[str, torch.Tensor]]:
    """The gradients of each step of a run of `main` in as many processes, by the main process."""
    folder.mkdir()
    steps: list[dict[str, torch.Tensor]] = []
    clip = Accelerator.clip_grad_norm_

    def keep(accelerator, parameters, max_norm):
        named = accelerator.unwrap_model(accelerator._models[0]).named_parameters()
        steps.append({name: whole(weight.grad).clone() for name, weight in named if weight.grad is not None})
        return clip(accelerator, accelerator._models[0].parameters(), max_norm)

    def work(rank: int) -> None:
        main(arguments)
        if rank == 0:
            torch.save(steps, folder / "gradients.pt")

    with monkeypatch.context() as patch:
        patch.setattr(Accelerator, "clip_grad_norm_", keep)
        assert in_processes(number, work, **environment) == [0] * number
    return torch.load(folder / "gradients.pt")


def two_have_the_gradients_of_one(
    main: Callable[[list[str]], None],
    monkeypatch: pytest.MonkeyPatch,
    arguments: Callable[..., list[str]],
    folder: Path,
    ways: Sequence[dict[str, str]] = ({},),
) -> list[dict[str, torch.Tensor]]:
    """Two processes with half the batch each have the gradients of one, at each step. Returns these.

    Args:
        arguments: of a run, from its output and the `batch_size` of a process.
        ways: by which the two train, as environment variables: DDP if there are none.
    """
    expected = gradients(main, monkeypatch, 1, arguments(folder / "one", batch_size=4), folder / "of-one")
    for way, environment in enumerate(ways):
        two = arguments(folder / f"two-{way}", batch_size=2)
        found = gradients(main, monkeypatch, 2, two, folder / f"of-two-{way}", **environment)
        for before, after in zip(expected, found, strict=True):
            assert before.keys() == after.keys()
            for name, gradient in before.items():
                torch.testing.assert_close(after[name], gradient, rtol=1e-3, atol=1e-5)
    return expected


def run_noting_losses(
    main: Callable[[list[str]], None],
    arguments: list[str],
    file: Path,
    processes: int = 1,
    at: int = 0,
    signal_number: int = 0,
    **environment: str,
) -> list[int | None]:
    """Run `main` in as many processes, and append each step's losses to a file, to the last bit.

    Args:
        at: the step at which each process sends itself a signal.
    """
    log = Accelerator.log

    def note(accelerator: Accelerator, values: dict[str, float], step: int) -> None:
        if accelerator.is_main_process and "grad_norm" in values:
            kept = sorted((key, value.hex()) for key, value in values.items() if "loss" in key or key == "grad_norm")
            with file.open("a") as lines:
                lines.write(f"{step} {kept}\n")
        if step == at:
            os.kill(os.getpid(), signal_number)
        log(accelerator, values, step=step)

    def work(rank: int) -> None:
        Accelerator.log = note
        main(arguments)

    return in_processes(processes, work, **environment)


def goes_on_bit_for_bit(main: Callable[[list[str]], None], arguments: list[str], folder: Path, **given: Any) -> None:
    """A run of four steps that is killed in its last does the last two again, from its checkpoint.

    Args:
        given: as `run_noting_losses` takes it.
    """
    killed, resumed = folder / "killed.txt", folder / "resumed.txt"
    codes = run_noting_losses(main, arguments, killed, **given, at=4, signal_number=signal.SIGKILL)
    assert codes[0] == -signal.SIGKILL
    assert {*run_noting_losses(main, [*arguments, "--resume", "true"], resumed, **given)} == {0}
    before, after = (file.read_text().splitlines() for file in (killed, resumed))
    assert len(before) == 4
    assert after == before[2:]
