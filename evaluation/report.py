"""The report of a comparison: tables, plots, report.md and results.json. Knows no models and no data."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from common.files import write_json, write_text
from common.progress import progress_bar
from evaluation.plots import SEED, colours, plot_averages, plot_rows
from evaluation.published import Published, beside_ours, rows_not_run
from evaluation.significance import bootstrap_interval, paired_p_values
from evaluation.tables import Table, environment, show

# A difference is marked where chance explains it with a lower probability.
SIGNIFICANCE_LEVEL = 0.05


# What is known of a system on a task: `task_type`, `models` (that made it), `measure` (the one in the tables),
# `protocol`, and by row and measure `rows`, `averages` and `per_item` (values by query or document).
Result = dict[str, Any]
Results = dict[str, dict[str, Result]]  # by task and system
Intervals = dict[str, tuple[float, float]]  # by row


def write_comparison(recipe: dict[str, Any], results: Results, published: list[Published]) -> None:
    """Write report.md, results.json and the plots, and show the tables."""
    output = Path(recipe["output"])
    reference = recipe["reference"] or list(recipe["systems"])[-1]
    tables = []
    intervals: dict[str, dict[str, Intervals]] = {}
    p_values: dict[str, dict[str, dict[str, float]]] = {}
    with progress_bar("differences and intervals", sum(map(len, results.values())), "result", delay=1) as progress:
        for task, task_results in results.items():
            p_values[task] = p_values_of(task_results, reference)
            tables.append(table_of(task, task_results, reference, p_values[task]))
            intervals[task] = {}
            for system, result in task_results.items():
                intervals[task][system] = intervals_of(result)
                progress.update()
    beside = [beside_ours(table, results[table.task]) for table in published if table.task in results]
    beside = [table for table in beside if table.scores]
    not_run = [
        f"* table {table.table} ({table.source}), {table.rows[name]['label']}: {reason}\n"
        for table, name, reason in rows_not_run(published, results)
    ]
    widths = [table_of_intervals(task, results[task], task_results) for task, task_results in intervals.items()]
    plots = plot(results, output / "plots")
    made = {
        "command": shlex.join(["python", "-m", "evaluation", *sys.argv[1:]]),
        "seed": SEED,
        "environment": environment(),
        "recipe": recipe,
    }
    kept = {
        task: {
            system: {key: value for key, value in result.items() if key != "per_item"}
            | {"intervals": intervals[task][system], "p_values": p_values[task].get(system, {})}
            for system, result in task_results.items()
        }
        for task, task_results in results.items()
    }
    write_json(output / "results.json", made | {"published": [asdict(table) for table in published], "tasks": kept})
    plain = json.loads(json.dumps(made))  # range types become the numbers that they are
    how = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    sections = {
        "Scores": [table.to_markdown() for table in tables],
        "Beside published numbers": [table.to_markdown() for table in beside],
        "Published rows that were not run": ["".join(not_run)] if not_run else [],
        "How sure": [table.to_markdown() for table in widths if any(table.scores.values())],
        "Plots": [f"![{path.stem}](plots/{path.name})\n" for path in plots],
        "How it was made": [f"```yaml\n{how}```\n"],
    }
    lines = ["# Evaluation\n"]
    for title, parts in sections.items():
        lines += [f"## {title}\n", *parts] if parts else []
    write_text(output / "report.md", "\n".join(lines))
    show([*tables, *beside])


def table_of(task: str, results: dict[str, Result], reference: str, p_values: dict[str, dict[str, float]]) -> Table:
    """The scores of all systems on a task, marked where they differ from the reference's.

    Args:
        p_values: by system and row; none without the reference.
    """
    marks = {
        system: {row: "*" for row, p_value in system_scores.items() if p_value < SIGNIFICANCE_LEVEL}
        for system, system_scores in p_values.items()
    }
    note = ""
    if p_values:
        note = f"\\* differs from {reference}: paired t-test, corrected over the rows, p < {SIGNIFICANCE_LEVEL}."
    protocols = dict.fromkeys(result["protocol"] for result in results.values())
    scores = {system: column(result) for system, result in results.items()}
    return Table(f"{measure_of(results)} on {task}, {'; '.join(protocols)}", "", scores, marks, note)


def p_values_of(results: dict[str, Result], reference: str) -> dict[str, dict[str, float]]:
    """By system and row, see `paired_p_values`; nothing without the reference."""
    if reference not in results:
        return {}
    values_of_reference = values_of(results[reference])
    return {system: paired_p_values(values_of(result), values_of_reference) for system, result in results.items()}


def table_of_intervals(task: str, results: dict[str, Result], intervals: dict[str, Intervals]) -> Table:
    """Half the width of the bootstrap interval of each row."""
    scores = {
        system: {row: (high - low) / 2 for row, (low, high) in system_scores.items()}
        for system, system_scores in intervals.items()
    }
    return Table(f"{measure_of(results)} on {task}, half the 95 % bootstrap interval", "", scores)


def measure_of(results: dict[str, Result]) -> str:
    """The measure in the tables of a task, which is that of each of its results."""
    return next(iter(results.values()))["measure"]


def intervals_of(result: Result) -> Intervals:
    return {row: bootstrap_interval(values) for row, values in values_of(result).items() if row in result["rows"]}


def values_of(result: Result) -> dict[str, dict[str, float]]:
    """Values by row and by query or document, and of averages by draw of the training documents; none of a measure,
    such as F1, that is no mean over documents."""
    measure = result["measure"]
    return {row: values[measure] for row, values in result["per_item"].items() if measure in values}


def column(result: Result) -> dict[str, float]:
    """The scores by row, averages behind them, and how much of the pool's first ten is in the query's language."""
    own_language = {
        f"{row}, share of own language in the first ten": scores["own_language@10"]
        for row, scores in result["rows"].items()
        if "own_language@10" in scores
    }
    return {
        row: scores[result["measure"]] for row, scores in (result["rows"] | result["averages"]).items()
    } | own_language


def plot(results: Results, folder: Path) -> list[Path]:
    """All plots that the results allow. Those of vectors were made with the results."""
    colour_of = colours(system for task_results in results.values() for system in task_results)  # the same in all plots
    paths = []
    averages = {
        f"{task}, {measure_of(task_results)}": {
            system: result["averages"]["average"][result["measure"]]
            for system, result in task_results.items()
            if "average" in result["averages"]
        }
        for task, task_results in results.items()
    }
    if any(averages.values()):
        shown = {task: task_results for task, task_results in averages.items() if task_results}
        paths.append(plot_averages(shown, colour_of, folder / "averages.png"))
    for task, task_results in results.items():
        rows = {
            system: {row: scores[result["measure"]] for row, scores in result["rows"].items()}
            for system, result in task_results.items()
        }
        paths.append(plot_rows(f"{measure_of(task_results)} on {task}", rows, colour_of, folder / f"{task}.png"))
    all_results = [result for task_results in results.values() for result in task_results.values()]
    vector_plots = [folder / result["plot"] for result in all_results if "plot" in result]
    return paths + [path for path in vector_plots if path.exists()]
