"""`python -m evaluation` for recipes that name systems and tasks of other papers, too.

python -m replications.evaluate --config RECIPE [--key value ...]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import common.threads

import replications.encoders  # noqa: F401  # so that systems of their kinds open
from common.command_line import run
from evaluation.__main__ import main as evaluate
from evaluation.recipes import EvaluationRecipe
from evaluation.registry import SYSTEMS, TASKS, SystemKind
from replications.longformer.options import LongformerOptions
from replications.question_answering.options import QuestionTask

SYSTEMS["longformer"] = SystemKind(
    "replications.longformer.system",
    needs=("model",),
    takes=("pooling", "query_prompt", "document_prompt", "global_attention"),
)
TASKS["questions"] = "replications.question_answering.evaluation"


@dataclass
class ReplicationsRecipe(EvaluationRecipe):
    """A comparison: every system on every task, those of other papers too. See EvaluationRecipe.

    Args:
        systems: by name, each with its `kind` and the options of that kind.
        questions: tasks by name.
    """

    systems: Mapping[str, LongformerOptions]
    questions: dict[str, QuestionTask] = field(default_factory=dict)


def main(argv: list[str] | None = None) -> None:
    evaluate(argv, ReplicationsRecipe)


if __name__ == "__main__":
    run(main)
