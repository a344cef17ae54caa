"""`python -m evaluation` for recipes that name systems and tasks of other papers, too, beside published numbers.

    python -m replications.evaluate --config RECIPE [--key value ...]
    python -m replications.evaluate rows --config RECIPE     which rows of published tables it runs, which not, and why

Writes published.md too: our numbers beside the published ones, and the published rows that were not run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import hmde.common.threads

from evaluation.compare import compare
from hmde.common.command_line import options_from, run
from replications.evaluation_recipe import ReplicationsRecipe
from replications.published import print_rows, read_published, write_beside_published


def main(argv: list[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    only_rows = argv[:1] == ["rows"]
    recipe = options_from(ReplicationsRecipe, argv[only_rows:])
    if only_rows and recipe.published is None:
        raise ValueError("rows prints published tables, but the recipe names none; give it their file, published")
    published = read_published(Path(recipe.published)) if recipe.published else []
    if only_rows:
        print_rows(recipe, published)
    else:
        write_beside_published(Path(recipe.output) / "published.md", published, compare(recipe))


if __name__ == "__main__":
    run(main)
