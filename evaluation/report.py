"""The report of a comparison: tables, report.md and results.json. Knows no models and no data."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import evaluate
import yaml

from evaluation.significance import paired_p_values
from evaluation.tables import Table, environment
from hmde.common.files import file_written_whole, write_text

# A difference is marked if its p-value is lower than this.
SIGNIFICANCE_LEVEL = 0.05

# What is known of a system on a task: `task_type`, `models` (that made it), `measure` (the one in the tables),
# `protocol`, and by row and measure `rows`, `averages` and `per_item` (values by query or document). The report adds
# `intervals` and `p_values`, by row.
Result = dict[str, Any]
Results = dict[str, dict[str, Result]]  # by task and system


def write_comparison(recipe: dict[str, Any], results: Results) -> None:
    """Write report.md and results.json, and show the tables."""
    output = Path(recipe["output"])
    reference = recipe["reference"] or list(recipe["systems"])[-1]
    for task_results in results.values():
        for result in task_results.values():
            result["p_values"] = {}
            if reference in task_results:
                result["p_values"] = paired_p_values(values_of(result), values_of(task_results[reference]))
    tables = [table_of_scores(task, task_results, reference) for task, task_results in results.items()]
    made = {
        "command": shlex.join(["python", "-m", program(), *sys.argv[1:]]),
        "environment": environment(),
        "recipe": recipe,
    }
    kept = {
        task: {
            system: {key: value for key, value in result.items() if key != "per_item"}
            for system, result in task_results.items()
        }
        for task, task_results in results.items()
    }
    with file_written_whole(output / "results.json") as partial:
        evaluate.save(partial, **made, tasks=kept)
    plain = json.loads(json.dumps(made))  # range types become the numbers that they are
    how = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    sections = {
        "Scores": [table.to_markdown() for table in tables],
        "How it was made": [f"```yaml\n{how}```\n"],
    }
    lines = ["# Evaluation\n"]
    for title, parts in sections.items():
        lines += [f"## {title}\n", *parts] if parts else []
    write_text(output / "report.md", "\n".join(lines))
    print("\n".join(table.to_markdown() for table in tables))


def program() -> str:
    """The module that runs, such as replications.evaluate, whose recipes `python -m evaluation` refuses."""
    spec = sys.modules["__main__"].__spec__
    return spec.name.removesuffix(".__main__") if spec else "evaluation"


def values_of(result: Result) -> dict[str, dict[str, float]]:
    """Values by row and by query or document, which tests and intervals take for independent observations. So there are
    none of averages over draws of the training documents, since all draws share one test; and none of a measure, such
    as F1, that is no mean over documents."""
    measure, rows = result["measure"], result["rows"]
    return {row: values[measure] for row, values in result["per_item"].items() if row in rows and measure in values}


def table_of_scores(task: str, results: dict[str, Result], reference: str) -> Table:
    """The scores of all systems on a task by row, averages behind them, and how much of the pool's first ten is in the
    query's language. Marked where they differ from the reference's."""
    scores = {}
    for system, result in results.items():
        rows = result["rows"] | result["averages"]
        scores[system] = {row: row_scores[result["measure"]] for row, row_scores in rows.items()} | {
            f"{row}, share of own language in the first ten": row_scores["own_language@10"]
            for row, row_scores in rows.items()
            if "own_language@10" in row_scores
        }
    marks = {
        system: {row: "*" for row, p_value in result["p_values"].items() if p_value < SIGNIFICANCE_LEVEL}
        for system, result in results.items()
    }
    note = f"\\* differs from {reference}: paired t-test, corrected over the rows, p < {SIGNIFICANCE_LEVEL}."
    protocols = dict.fromkeys(result["protocol"] for result in results.values())
    title = f"{measure_of(results)} on {task}, {'; '.join(protocols)}"
    return Table(title, "", scores, marks, note if reference in results else "")


def measure_of(results: dict[str, Result]) -> str:
    """The measure in the tables of a task, which is that of each of its results."""
    return next(iter(results.values()))["measure"]
