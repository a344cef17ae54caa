"""The paired t-tests of T-MDE's thesis (Li 2021, table 4.12) over the ten folds of `draw_folds`.

    python -m replications.evaluate --config replications/t_mde/folds.yaml
    python -m replications.t_mde.compare_folds

A value of a system is its average accuracy across languages on a fold, of all pairs of different languages (Cross).
Tests are two-sided and not corrected for their number; a result is significant if p < .01.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import hmde.common.terminal
import hmde.common.threads

from evaluation.tables import Table
from hmde.common.command_line import options_from, run

LEVEL = 0.01
TABLE_4_12 = [
    ["laser-1", "laser-6"],
    ["laser-6", "claser-6"],
    ["t-mde", "ct-mde"],
    ["laser-6", "t-mde"],
    ["t-mde-f", "t-mde"],
    ["xlmr", "t-mde"],
]


@dataclass(kw_only=True)
class ComparisonOptions:
    """Paired t-tests of systems over folds."""

    evaluation: str = "runs/translators-folds"
    """Output of an evaluation whose tasks are the folds."""

    pairs: list[list[str]] = field(default_factory=lambda: TABLE_4_12)
    """Pairs of systems, those of table 4.12 if not given."""


def main(argv: list[str] | None = None) -> None:
    options = options_from(ComparisonOptions, argv)
    results = json.loads((Path(options.evaluation) / "results.json").read_text(encoding="utf-8"))
    scores = scores_by_fold(results["tasks"])
    for system in {system for pair in options.pairs for system in pair} - {*scores}:
        raise ValueError(f"{options.evaluation} has no {system} on every task; it has {', '.join(scores)}")
    print(table(scores, options.pairs).to_markdown())


def scores_by_fold(tasks: dict) -> dict[str, list[float]]:
    """By system, the average accuracy across languages on each task; of those that have one on all."""
    systems = set.intersection(*({*results} for results in tasks.values()))
    return {
        system: [results[system]["averages"]["average, across languages"]["accuracy"] for results in tasks.values()]
        for system in sorted(systems)
    }


def table(scores: dict[str, list[float]], pairs: list[list[str]]) -> Table:
    """The means of both systems of each pair, and p of their difference."""
    from scipy import stats

    columns: dict[str, dict[str, float]] = {"first": {}, "second": {}, "p": {}}
    marks: dict[str, dict[str, str]] = {"p": {}}
    for first, second in pairs:
        row = f"{first}, {second}"
        count = len(scores[first])
        columns["first"][row], columns["second"][row] = sum(scores[first]) / count, sum(scores[second]) / count
        columns["p"][row] = float(stats.ttest_rel(scores[first], scores[second]).pvalue)
        marks["p"][row] = "*" if columns["p"][row] < LEVEL else ""
    title = f"average accuracy across languages, {len(scores[pairs[0][0]])} folds"
    return Table(title, "systems", columns, marks, f"\\* p < {LEVEL}, paired t-test over the folds, not corrected.")


if __name__ == "__main__":
    run(main)
