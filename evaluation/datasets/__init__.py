"""Data sets. retrieval_sets.py and labelled_sets.py read this project's own format. A recipe names the module of a
published set as `format`: it says how the set's files are to lie, and its function `convert(task, output)` turns them
into that format. ir_datasets.py, mldr.py and others of this folder are such modules; replications/datasets has more.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from evaluation.recipes import ClassificationTask, RetrievalTask


def module_of(task: RetrievalTask | ClassificationTask) -> ModuleType:
    """The module that reads a task's format.

    Raises:
        ValueError: the format is no module's full name.
    """
    if "." not in task.format:
        example = "evaluation.datasets.ir_datasets"
        raise ValueError(f"format is {task.format!r}; it must be hmde, or the full name of a module, such as {example}")
    return import_module(task.format)
