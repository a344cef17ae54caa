"""`python -m evaluation` for recipes that name systems and tasks of other papers, too.

python -m replications.evaluate --config RECIPE [--key value ...]
"""

from __future__ import annotations

import common.terminal
import common.threads

import replications.encoders  # noqa: F401  # so that systems of their kinds open
from common.command_line import run
from evaluation.__main__ import main as evaluate
from replications.evaluation_recipe import ReplicationsRecipe


def main(argv: list[str] | None = None) -> None:
    evaluate(argv, ReplicationsRecipe)


if __name__ == "__main__":
    run(main)
