"""Checkpoints that are whole or not there: saving, finding the newest one that can be read, and what it belongs to."""

from __future__ import annotations

import json
import logging
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import Tensor, nn

from hmde.common.files import folder_written_whole, partial_of, write_json
from hmde.common.fingerprints import digest, fingerprint_of_weights

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"

# Options that may change on resume, because neither a step nor the model that is kept depends on them.
MAY_CHANGE = {
    *("corpus", "output", "resume", "num_workers", "save_steps"),
    *("log_steps", "log_with", "push_to_hub"),
}


def describe_run(recipe: dict[str, Any], data: str, encoder: nn.Module, num_processes: int) -> dict[str, Any]:
    """What must be the same when a run is resumed. As JSON reads it back.

    Args:
        recipe: all fields, and what else must be the same.
        data: fingerprint of the training data.
        encoder: what is trained. Its frozen weights are in no checkpoint.
    """
    kept: dict[str, Any] = {name: value for name, value in recipe.items() if name not in MAY_CHANGE}
    kept |= {"corpus": data, "number of processes": num_processes}
    if frozen := frozen_weights(encoder):
        kept["frozen weights"] = fingerprint_of_weights(frozen.items())
    return json.loads(json.dumps(kept))


def frozen_weights(encoder: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that are not trained, by name."""
    return {name: weight for name, weight in encoder.named_parameters() if not weight.requires_grad}


def leave_out_frozen_weights(accelerator: Accelerator) -> None:
    """From now on, checkpoints have the trained weights alone: with LoRA, the adapter and the document encoder. Those
    of FSDP have all."""

    def leave_out(encoders: list[nn.Module], states: list[dict[str, Tensor]], _: str) -> None:
        for encoder, state in zip(encoders, states):
            for name in frozen_weights(encoder).keys() & state.keys():
                del state[name]

    accelerator.register_save_state_pre_hook(leave_out)


def training_folder(output: str) -> Path:
    """Where the checkpoints and logs of a run lie, and whatever it makes on the way.

    Args:
        output: folder of the finished model.
    """
    return Path(f"{output}-training")


def check_output(output: str, checkpoint_folders: list[Path], resume: bool) -> None:
    """Whether a run may write its output, and whether its training folder has what it expects.

    Args:
        output: folder of the finished model.
        checkpoint_folders: in its training folder.
        resume: whether the run resumes from them.

    Raises:
        ValueError: the output has no name or is there already, there are checkpoints of another run, or there is none
            to resume from.
    """
    if not output:
        raise ValueError("output is empty; name a folder to write")
    folder = training_folder(output)
    if Path(output).exists() and not resume:
        raise ValueError(f"{output} exists; remove it and {folder}, name another output, or resume with --resume true")
    if checkpoint_folders and not resume:
        way_out = f"resume it with --resume true, remove {folder}, or name another output"
        raise ValueError(f"{folder} has checkpoints of an earlier run; {way_out}")
    if resume and not checkpoint_folders:
        raise ValueError(f"{folder} has no checkpoint to resume from; start without --resume")


def save_checkpoint(accelerator: Accelerator, folder: Path, step: int, run: dict[str, Any], keep: int = 2) -> None:
    """Write `folder/step-<step>` and remove all but the last `keep`.

    Every process writes its part under a temporary name. The checkpoint gets its name when all have, and only then are
    older ones removed.

    Raises:
        OSError: it could not be written (a full disk); those before are still there.
    """
    target = folder / f"step-{step:08d}"
    is_main = accelerator.is_main_process
    try:
        with folder_written_whole(target) if is_main else nullcontext(partial_of(target)) as partial:
            accelerator.wait_for_everyone()
            accelerator.save_state(str(partial))
            accelerator.wait_for_everyone()
            if is_main:
                files = {str(path.relative_to(partial)): digest(path) for path in partial.rglob("*") if path.is_file()}
                write_json(partial / MANIFEST, {"run": run, "files": files})
        if is_main:
            for old in checkpoints(folder)[:-keep]:
                shutil.rmtree(old)
    except Exception as error:  # safetensors has errors of its own for a full disk
        before = checkpoints(folder)
        raise OSError(
            f"the checkpoint of step {step} could not be written to {folder}: {error}. "
            + (f"{before[-1].name} is whole; " if before else "There is none before it; ")
            + "free some space and resume with --resume true"
        ) from error
    accelerator.wait_for_everyone()


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(folder.glob("step-*"))


def load_newest_checkpoint(accelerator: Accelerator, folder: Path, run: dict[str, Any]) -> None:
    """Load the newest checkpoint that is whole, with a warning for each that is not.

    Raises:
        ValueError: there is none, or it belongs to another run; the message names what differs.
    """
    chosen: list[str | None] = [None]
    if accelerator.is_main_process:
        for path in reversed(checkpoints(folder)):
            fault = broken_file(path)
            if fault is None:
                chosen = [str(path)]
                break
            logger.warning("checkpoint %s is broken (%s); taking the one before it", path, fault)
    broadcast_object_list(chosen)
    if chosen[0] is None:
        raise ValueError(f"{folder} has no whole checkpoint to resume from; start without --resume")
    saved = json.loads((Path(chosen[0]) / MANIFEST).read_text(encoding="utf-8"))["run"]
    check_same_run(chosen[0], saved, run)
    accelerator.load_state(chosen[0], strict=False)  # frozen weights are not in it


def check_same_run(place: str | Path, saved: dict[str, Any], run: dict[str, Any]) -> None:
    """
    Args:
        place: what is resumed from.
        saved: what `describe_run` says of it.
        run: what it says of the run that resumes.

    Raises:
        ValueError: they differ; the message names in what.
    """
    different = [
        f"{name} was {saved.get(name)!r} and is {run.get(name)!r}"
        for name in sorted(saved.keys() | run.keys())
        if saved.get(name) != run.get(name)
    ]
    if different:
        raise ValueError(f"{place} belongs to another run: {'; '.join(different)}; start anew under another output")


def broken_file(folder: Path) -> str | None:
    """What is wrong with a checkpoint; None if it is as it was written."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{MANIFEST}: {error!r}"
    for name, expected in files.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if digest(folder / name) != expected:
            return f"{name} is not what was written"
    return None


@contextmanager
def sigterm_lets_the_step_finish(accelerator: Accelerator) -> Iterator[None]:
    """Within, SIGTERM makes `accelerator.check_trigger()` true in all processes, and does not end this one."""
    before = signal.signal(signal.SIGTERM, lambda *_: accelerator.set_trigger())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
