"""Data sets. retrieval_sets.py and labelled_sets.py read this project's own format; the module of a published set says
how its files are to lie, and turns them into that format.

Where a data set is a folder, it lies there as published; else it is a name on the Hugging Face Hub, or one of
ir_datasets.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from evaluation.recipes import ClassificationTask, RetrievalTask


def module_of(task: RetrievalTask | ClassificationTask) -> ModuleType:
    """The module that reads a task's format, by its function `convert(task, output)`.

    Raises:
        ValueError: the format is unknown.
    """
    if task.format in task.formats:
        return import_module(f"evaluation.datasets.{task.format}")
    if "." not in task.format:
        raise ValueError(
            f"format is {task.format!r}; it must be one of hmde, {', '.join(task.formats)}, or a module's full name"
        )
    return import_module(task.format)
