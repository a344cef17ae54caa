"""Compare systems on retrieval and classification by one command.

    python -m evaluation --config configuration/evaluate/sample.yaml [--key value ...]

Every system meets every task. Writes to the output

    report.md                        tables, significance
    results.json                     all numbers, with recipe and environment
    results/<task>/<system>.json     one result, with its values by query or document
    runs/<task>/<system>/<pair>.run  rankings, as trec_eval reads them
    data/<task>, cache               data sets in this project's format; vectors and indexes

A result is not computed again unless its system, its data, the code or a library has changed. Vectors and indexes are
kept in the same way.
"""

from __future__ import annotations

import hmde.common.threads

from evaluation.recipes import EvaluationRecipe
from hmde.common.command_line import options_from, run


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(EvaluationRecipe, argv)

    from evaluation.compare import compare  # takes seconds, for which neither --help nor a misspelt option should wait

    compare(recipe)


if __name__ == "__main__":
    run(main)
