"""`python -m evaluation` for recipes that name systems and tasks of other papers, too.

python -m replications.evaluate --config RECIPE [--key value ...]
"""

from __future__ import annotations

import replications.encoders  # noqa: F401  # so that systems of their kinds open
from common.command_line import run
from evaluation.__main__ import main as evaluate
from evaluation.registry import SYSTEMS, TASKS, Kind
from replications.longformer.options import LongformerOptions
from replications.question_answering.options import QuestionTask

SYSTEMS["longformer"] = Kind(LongformerOptions, "replications.longformer.system")
TASKS["questions"] = Kind(QuestionTask, "replications.question_answering.evaluation")


def main(argv: list[str] | None = None) -> None:
    evaluate(argv)


if __name__ == "__main__":
    run(main)
