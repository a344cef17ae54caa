"""A run of transformers' Trainer: its arguments, a training folder of its own, and whole checkpoints to resume from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from evaluation.tables import environment
from hmde.common.files import folder_written_whole, full_disk_named, locked, write_json
from hmde.common.fingerprints import digest
from hmde.common.numbers import Seed
from training.loop.checkpoints import check_output, check_same_run, training_folder

RUN = "run.json"

# What may change on resume, because no step depends on it: fields of a recipe, and how arguments of the Trainer begin.
MAY_CHANGE = {"data", "corpus", "output", "resume", "test_languages", "trainer"}
ARGUMENTS_MAY_CHANGE = (
    *("output_dir", "resume_from_checkpoint", "save_total_limit", "save_on_each_node", "hub_", "push_to_hub"),
    *("log_", "logging_", "report_to", "run_name", "project", "trackio_", "disable_tqdm", "skip_memory_metrics"),
    *("use_cpu", "local_rank", "ddp_", "debug"),
    *("dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers", "dataloader_prefetch_factor"),
)


@dataclass
class TrainerArguments(TrainingArguments):
    """TrainingArguments of transformers, without those that the `output` and `resume` of a recipe stand for. A recipe
    nests a subclass with its own defaults, so that each argument is an option: `--trainer.learning_rate 2e-5`."""

    save_total_limit: int | None = 1
    report_to: str | list[str] | None = "none"
    seed: Seed = 42
    use_cpu: bool = field(default_factory=lambda: not torch.accelerator.is_available())  # else bf16 is refused there
    output_dir: str | None = field(default=None, init=False)
    resume_from_checkpoint: str | None = field(default=None, init=False)

    def changed(self) -> dict[str, Any]:
        """The arguments that differ from the defaults of transformers, as JSON and YAML hold them."""
        defaults = TrainingArguments(use_cpu=self.use_cpu).to_dict()
        return {name: value for name, value in self.to_dict().items() if value != defaults[name]}


def recipe_of_run(recipe: Any) -> dict[str, Any]:
    """The fields of a recipe for the results and the card of its run, where `trainer` has what it changed."""
    return asdict(recipe) | {"trainer": recipe.trainer.changed()}


@contextmanager
def trainer_run(arguments: TrainerArguments, output: str, resume: bool) -> Iterator[str | None]:
    """Send the Trainer's files to `<output>-training`, keep other runs away from it, and find the checkpoint to resume
    from, if `resume` says so.

    Raises:
        ValueError: another run writes there, the output is there already, there are checkpoints of another run, or
            there is none to resume from.
    """
    folder = training_folder(output)
    arguments.output_dir = str(folder)
    with locked(folder, wait=False) if arguments.process_index == 0 else nullcontext():
        checkpoints = whole_checkpoints(folder)
        check_output(output, checkpoints, resume)
        with full_disk_named(folder):
            yield str(checkpoints[-1]) if resume else None


def check_run(recipe: Any, data: Iterable[Path]) -> None:
    """Within `trainer_run`: when a run starts, keep in its training folder what must be the same when it is resumed;
    when it is resumed, compare.

    Args:
        recipe: with the fields `trainer`, `output` and `resume`.
        data: the files that the run learns from, and those that choose its best step.

    Raises:
        ValueError: the recipe, the data or the number of processes are not those of the run that is resumed.
    """
    arguments = recipe.trainer
    run = {name: value for name, value in asdict(recipe).items() if name not in MAY_CHANGE}
    run |= {
        f"trainer.{name}": value
        for name, value in arguments.to_dict().items()
        if not name.startswith(ARGUMENTS_MAY_CHANGE)
    }
    run |= {file.name: digest(file) for file in data}
    run["number of processes"] = arguments.world_size * max(1, arguments.n_gpu)  # one process may use several GPUs
    folder = training_folder(recipe.output)
    if not recipe.resume:
        if arguments.process_index == 0:
            write_json(folder / RUN, run)
    elif (folder / RUN).is_file():
        check_same_run(folder, json.loads((folder / RUN).read_text(encoding="utf-8")), json.loads(json.dumps(run)))
    else:
        raise ValueError(f"{folder} has no {RUN}, which says of which run it is; start anew under another output")


def write_model(
    recipe: Any, model: Any, tokenizer: Any, results: dict[str, Any], write_card: Callable[[Path], Any] | None = None
) -> None:
    """Write the output folder of a run, whole: its model, its tokenizer, results.json, and its card if it has one."""
    with folder_written_whole(recipe.output) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        write_json(folder / "results.json", {"recipe": recipe_of_run(recipe), "environment": environment()} | results)
        if write_card is not None:
            write_card(folder)


def whole_checkpoints(folder: Path) -> list[Path]:
    """By step. The Trainer gives a checkpoint its name before it is whole, and writes its state last."""
    steps = {}
    for checkpoint in folder.glob("checkpoint-*"):
        try:
            steps[checkpoint] = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME)).global_step
        except (OSError, ValueError):
            continue
    return sorted(steps, key=steps.__getitem__)
