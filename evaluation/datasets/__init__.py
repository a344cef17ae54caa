"""Data sets. retrieval_sets.py and labelled_sets.py read this project's own format. A recipe names the module of
another set as `format`: it says how the set's files are to lie, and its function `convert(task, output)` turns them
into that format. articles.py is such a module, and replications/datasets has those of published sets.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from evaluation.recipes import ClassificationTask, RetrievalTask


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
