"""Data sets. retrieval_sets.py and labelled_sets.py read this project's own format; the module of a published set says
how its files are to lie, and turns them into that format.

Where a data set is a folder, it lies there as published; else it is a name on the Hugging Face Hub, or one of
ir_datasets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from evaluation.datasets import (
    clef,
    europarl,
    irds,
    masakhanews,
    mldoc,
    mldr,
    multieurlex,
    ntrex,
    sib200,
    tatoeba,
    xnli,
)
from evaluation.recipes import ClassificationTask, RetrievalTask

FORMATS: dict[type, dict[str, Callable[[Any, Path], None]]] = {
    RetrievalTask: {
        "clef": clef.convert,
        "mldr": mldr.convert,
        "ir_datasets": irds.convert,
        "ntrex": ntrex.convert,
        "tatoeba": tatoeba.convert,
        "europarl": europarl.convert,
    },
    ClassificationTask: {
        "mldoc": mldoc.convert,
        "masakhanews": masakhanews.convert,
        "sib200": sib200.convert,
        "xnli": xnli.convert,
        "multieurlex": multieurlex.convert,
    },
}


def convert(task: RetrievalTask | ClassificationTask, output: Path) -> None:
    """Write a task's data, of whatever format, to a folder in this project's own.

    Args:
        task: whose `data` and `format` say what to read, and whose languages what to write.
        output: folder to write.

    Raises:
        ValueError: the format is unknown, or a file is missing or malformed.
    """
    formats = FORMATS[type(task)]
    if task.format not in formats:
        raise ValueError(f"format is {task.format!r}; it must be one of hmde, {', '.join(formats)}")
    formats[task.format](task, output)
