"""Which rows of published tables a recipe runs, which not, and why. Reads neither models nor data.

python -m evaluation rows --config configuration/evaluate/licensed.yaml
"""

from __future__ import annotations

from pathlib import Path

from evaluation.published import read_published, rows_not_run
from evaluation.recipes import EvaluationRecipe
from evaluation.registry import TASKS


def names_by_result(recipe: EvaluationRecipe) -> dict[str, set[str]]:
    """The names of the systems and of the fine-tuned models that a recipe runs, by the name of the result."""
    names: dict[str, set[str]] = {}
    for kind in TASKS:
        for task, options in getattr(recipe, kind, {}).items():
            taken = {name for name, system in recipe.systems.items() if options.takes(system)}
            names.setdefault(task + options.results_of_systems, set()).update(taken)
            finetuned = getattr(options, "finetuned", {})
            names.setdefault(task + options.results_of_models, set()).update(finetuned)
    return names


def print_rows(recipe: EvaluationRecipe) -> None:
    """
    Raises:
        ValueError: the recipe names no published numbers, or they are malformed.
    """
    if recipe.published is None:
        raise ValueError("published is not given; this recipe stands beside no published numbers")
    run = names_by_result(recipe)
    for table in read_published(Path(recipe.published)):
        reasons = {name: reason for _, name, reason in rows_not_run([table], run)}
        number = len(table.rows) - len(reasons)
        print(f"table {table.table} ({table.source}), {table.task}: {number} of {len(table.rows)} rows are run")
        for name, row in table.rows.items():
            print(f"  not run  {row['label']}: {reasons[name]}" if name in reasons else f"  run      {row['label']}")
