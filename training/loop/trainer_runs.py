"""A run of transformers' Trainer: its arguments, a training folder of its own, and whole checkpoints to go on from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from common.files import locked
from training.loop.checkpoints import check_output


@contextmanager
def trainer_run(output: str, resume: bool) -> Iterator[str | None]:
    """Keep other runs away from `<output>-training`, and find the checkpoint to go on from, if `resume` says so.

    Raises:
        ValueError: another run writes there, the output is there already, there are checkpoints of another run, or
            there is none to go on from.
    """
    folder = Path(f"{output}-training")
    is_main_process = os.environ.get("RANK", "0") == "0"  # the Trainer, which knows it too, is made later
    with locked(folder, wait=False) if is_main_process else nullcontext():
        checkpoints = whole_checkpoints(folder)
        check_output(output, checkpoints, resume, "resume_from_checkpoint")
        yield str(checkpoints[-1]) if resume else None


def whole_checkpoints(folder: Path) -> list[Path]:
    """By step. The Trainer gives a checkpoint its name before it is whole, and writes its state last."""
    steps = {}
    for checkpoint in folder.glob("checkpoint-*"):
        try:
            steps[checkpoint] = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME)).global_step
        except (OSError, ValueError):
            continue
    return sorted(steps, key=steps.__getitem__)


def training_arguments(recipe: Any, **more: Any) -> TrainingArguments:
    """The fields of a recipe that TrainingArguments has too.

    Args:
        recipe: a dataclass with an `output`.
        more: that the recipe does not say, or says otherwise.
    """
    known = {field.name for field in fields(TrainingArguments)}
    shared = {name: value for name, value in asdict(recipe).items() if name in known}
    cpu = not torch.accelerator.is_available()  # unsaid, bf16 is refused there
    return TrainingArguments(output_dir=f"{recipe.output}-training", **({"use_cpu": cpu} | shared | more))
