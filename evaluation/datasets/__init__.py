"""Data sets. retrieval_sets.py and labelled_sets.py read this project's own format. A recipe names the module of
another set as `format`: it says how the set's files are to lie, and its function `convert(task, output)` turns them
into that format. articles.py is such a module, and replications/datasets has those of published sets.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from evaluation.recipes import ClassificationTask, RetrievalTask
from hmde.common.files import folder_written_whole, locked
from hmde.common.fingerprints import digest, fingerprint, fingerprint_of_folder


def module_of(task: RetrievalTask | ClassificationTask) -> ModuleType:
    """The module that reads a task's format.

    Raises:
        ValueError: the format is no module's full name, or that of a module that converts nothing.
    """
    rule = "it must be hmde, or the full name of a module, such as replications.datasets.ir_datasets"
    if "." not in task.format.strip("."):
        raise ValueError(f"format is {task.format!r}; {rule}")
    try:
        module = import_module(task.format)
    except ModuleNotFoundError as error:
        if not f"{task.format}.".startswith(f"{error.name}."):
            raise  # a module that the format needs
        raise ValueError(f"format is {task.format!r}, but there is {str(error).lower()}; {rule}") from None
    if not hasattr(module, "convert"):
        raise ValueError(f"format is {task.format!r}, a module without a function convert(task, output); {rule}")
    return module


def converted(folder: Path, task: Any) -> Any:
    """The task with its data in this project's format, in `folder`: converted if they are new or changed."""
    source = Path(task.data)
    content = digest(source) if source.is_file() else fingerprint_of_folder(source)
    module = Path(str(module_of(task).__file__))
    code = [fingerprint_of_folder(Path(file).parent, "*.py") for file in (__file__, module)]
    done = f"{fingerprint(task, content, code)}.done"
    with locked(folder):
        if not (folder / done).exists():
            with folder_written_whole(folder) as new:
                module_of(task).convert(task, new)
                (new / done).touch()
    return replace(task, data=str(folder), format="hmde")
