"""What a recipe of an evaluation says of a task of questions. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evaluation.recipes import SystemOptions, TaskOptions


@dataclass
class QuestionTask(TaskOptions):
    """Questions whose answer stands in a text in the same language, to test models on that learnt from English ones.

    Args:
        data: folder MLQA_V1, as its archive unpacks (github.com/facebookresearch/MLQA).
        finetuned: models that replications/question_answering/finetune.py wrote, by name: the folders or Hub names
            of one or more runs, whose scores are averaged.
        measure: the one in the tables; the results have both.
    """

    data: str
    finetuned: dict[str, list[str]]
    measure: Literal["f1", "exact_match"] = "f1"

    def __post_init__(self) -> None:
        if not self.finetuned:
            raise ValueError("finetuned is empty; name at least one model")

    def takes(self, system: SystemOptions) -> bool:
        return False
