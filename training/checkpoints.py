"""Checkpoints that are whole or not there: saving, finding the newest one that can be read, and what it belongs to."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import signal
import zlib
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"

# What a run may change when it goes on, because the steps so far do not depend on it.
MAY_CHANGE = {
    *("corpus", "output", "resume", "num_workers", "eval_steps", "eval_concepts", "save_steps"),
    *("keep_checkpoints", "log_steps", "log_with", "push_to_hub", "device_tflops"),
}


def describe_run(recipe: dict[str, Any], corpus: str, num_processes: int) -> dict[str, Any]:
    """What must be the same when a run goes on: its recipe, its data, its processes. As JSON reads it back.

    Args:
        recipe: all fields.
        corpus: fingerprint of the corpus.
    """
    kept = {name: value for name, value in recipe.items() if name not in MAY_CHANGE}
    return json.loads(json.dumps(kept | {"corpus": corpus, "number of processes": num_processes}))


def corpus_fingerprint(folder: Path) -> str:
    """Of a corpus: its triples, word for word, and the sizes of its article tables."""
    digest = hashlib.sha256()
    with (folder / "triples.parquet").open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    for path in sorted((folder / "articles").glob("*.parquet")):
        digest.update(f"{path.name} {path.stat().st_size}".encode())
    return digest.hexdigest()[:16]


def save_checkpoint(accelerator: Accelerator, folder: Path, step: int, run: dict[str, Any], keep: int) -> None:
    """Write `folder/step-<step>` and remove all but the last `keep`.

    Every process writes its part beside; the checkpoint gets its name when all have, and only then do older ones go.

    Raises:
        RuntimeError: it could not be written (a full disk); those before are still there.
    """
    whole = folder / f"step-{step:08d}"
    partial = folder / f"step-{step:08d}.partial"
    if accelerator.is_main_process:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    accelerator.wait_for_everyone()
    try:
        accelerator.save_state(str(partial))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            files = {str(path.relative_to(partial)): checksum(path) for path in partial.rglob("*") if path.is_file()}
            (partial / MANIFEST).write_text(json.dumps({"run": run, "files": files}, indent=2) + "\n", encoding="utf-8")
            shutil.rmtree(whole, ignore_errors=True)
            os.replace(partial, whole)
            for old in checkpoints(folder)[:-keep]:
                shutil.rmtree(old)
    except Exception as error:  # safetensors has errors of its own for a full disk
        shutil.rmtree(partial, ignore_errors=True)
        before = checkpoints(folder)
        raise RuntimeError(
            f"the checkpoint of step {step} could not be written to {folder}: {error}. "
            + (f"{before[-1].name} is whole; " if before else "There is none before it; ")
            + "free some space and go on with --resume true"
        ) from error
    accelerator.wait_for_everyone()


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("step-*") if not path.name.endswith(".partial"))


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
    different = [
        f"{name} was {saved.get(name)!r} and is {run.get(name)!r}"
        for name in sorted(saved.keys() | run.keys())
        if saved.get(name) != run.get(name)
    ]
    if different:
        raise ValueError(
            f"{chosen[0]} belongs to another run: {'; '.join(different)}. Each process has its share of the data and "
            "random numbers of its own, so none of these can change on the way; start anew under another output"
        )
    accelerator.load_state(chosen[0])


def broken_file(folder: Path) -> str | None:
    """What is wrong with a checkpoint; None if it is as it was written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"{MANIFEST}: {error}"
    for name, expected in manifest["files"].items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if checksum(folder / name) != expected:
            return f"{name} is not what was written"
    return None


def checksum(path: Path) -> int:
    """CRC-32 of a file."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return value


def stop_on_sigterm(accelerator: Accelerator) -> None:
    """From now on SIGTERM lets the step finish: `accelerator.check_trigger()` tells all processes of it."""
    signal.signal(signal.SIGTERM, lambda *_: accelerator.set_trigger())
