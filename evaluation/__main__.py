"""Compare systems on retrieval and classification, beside published numbers, by one command.

    python -m evaluation --config configuration/evaluate/sample.yaml [--key value ...]
    python -m evaluation rows --config RECIPE       which rows of published tables a recipe runs, which not, and why

Every system meets every task. Writes to the output

    report.md                        tables, differences from published numbers, significance, plots
    results.json                     all numbers, with recipe and environment
    results/<task>/<system>.json     one result, with its values by query or document
    runs/<task>/<system>/<pair>.run  rankings, as trec_eval reads them
    plots/*.png
    data/<task>, cache               data sets in this project's format; vectors and indexes

A result is not computed again unless its system, its data, the code or a library has changed. Vectors and indexes are
kept in the same way.
"""

from __future__ import annotations

import sys

import common.terminal
import common.threads

from common.command_line import options_from, run
from evaluation.recipes import EvaluationRecipe


def main(argv: list[str] | None = None, recipe_type: type[EvaluationRecipe] = EvaluationRecipe) -> None:
    argv = sys.argv[1:] if argv is None else argv
    only_rows = argv[:1] == ["rows"]
    recipe = options_from(recipe_type, argv[only_rows:])

    # What follows takes seconds to import, for which neither --help nor a misspelt option should wait.
    if only_rows:
        from evaluation.published import print_rows

        print_rows(recipe)
    else:
        from evaluation.compare import compare

        compare(recipe)


if __name__ == "__main__":
    run(main)
