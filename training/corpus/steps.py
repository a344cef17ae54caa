"""Finished steps, kept in `<output>.steps` until the output is whole, so that the same command resumes there."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from hmde.common.files import write_json
from hmde.common.fingerprints import digest, fingerprint_of_folder
from training.corpus.database import SECONDS

NO_INFLUENCE = ("threads", "memory_limit")  # options that do not change what is written


def open_steps(output: Path, recipe: Any, inputs: list[Path], *code: Path) -> Path:
    """The folder of the steps, emptied if they belong to another recipe, to other inputs or to other code.

    Args:
        code: folders of it, beside this one.

    Raises:
        ValueError: the folder holds something else.
    """
    folder = steps_folder(output)
    mark = {
        "recipe": {name: value for name, value in asdict(recipe).items() if name not in NO_INFLUENCE},
        "inputs": [[str(path), digest(path)] for path in tqdm(inputs, "checksums", delay=SECONDS, disable=None)],
        "code": [
            fingerprint_of_folder(folder, pattern)
            for folder in (Path(__file__).parent, *code)
            for pattern in ("*.py", "*.sql")
        ],
    }
    path = folder / "mark.json"
    if not path.exists() or json.loads(path.read_text(encoding="utf-8")) != mark:
        names = [other.name for other in folder.glob("*")]
        if names and not any("mark" in name for name in names):
            raise ValueError(f"{folder} is no folder of this command, which keeps steps there; rename or remove it")
        remove_steps(output)
        write_json(path, mark)
    return folder


def remove_steps(output: Path) -> None:
    """Renames the folder first, so that a removal that is stopped halfway leaves nothing that looks finished."""
    folder = steps_folder(output)
    removed = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(removed, ignore_errors=True)
    if folder.exists():
        os.replace(folder, removed)
        shutil.rmtree(removed)


def steps_folder(output: Path) -> Path:
    return output.with_name(output.name + ".steps")
