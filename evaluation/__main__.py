"""Compare systems on retrieval and classification, beside published numbers, by one command.

    python -m evaluation --config configuration/evaluate/sample.yaml [--key value ...]

Every system meets every task. What was computed before and has changed in neither system nor data is not computed
again: each result is kept with a fingerprint of both, and so are document vectors and indexes. Writes to the output

    report.md                        tables, differences from published numbers, significance, plots
    results.json                     all numbers, with recipe and environment
    results/<task>/<system>.json     one result, with its values by query or document
    runs/<task>/<system>/<pair>.run  rankings, as trec_eval reads them
    plots/*.png
    data/<task>, cache               data sets in this project's format; vectors and indexes
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard
from jsonargparse import auto_cli

from evaluation.classification import (
    ClassificationTask,
    LabelledSet,
    check_labels,
    encode,
    evaluate_finetuned,
    evaluate_frozen,
    labels_of,
)
from evaluation.formats import prepare
from evaluation.plots import colours, plot_averages, plot_rows, plot_vectors
from evaluation.published import Published, comparison, read_published
from evaluation.readers import RetrievalSet
from evaluation.report import Table, environment, show, write_json, write_whole
from evaluation.retrieval import RetrievalTask, evaluate_task, to_trec
from evaluation.saved_models import fingerprint, fingerprint_of_code, fingerprint_of_folder, fingerprint_of_model
from evaluation.significance import bootstrap_interval, paired_p_values
from evaluation.systems import BM25, Dtype, SystemRecipe, check_systems, load_system

# How sure a difference must be to be marked.
SIGNIFICANCE_LEVEL = 0.05

# Seeds of everything that is drawn: bootstrap samples, the sample of an index, the layout of t-SNE.
SEED = 0


@dataclass
class EvaluationRecipe:
    """A comparison: every system on every task.

    Args:
        output: folder to write, and to go on in.
        systems: by name; see SystemRecipe.
        retrieval: tasks by name; see RetrievalTask.
        classification: tasks by name; see ClassificationTask.
        published: file of published numbers to stand beside ours; evaluation/published.py says what is in it.
        reference: the system that others are tested for significance against; the last one if not given.
        model_cards: systems whose folders' model cards get their results (`model-index`).
        dtype: float32, or bfloat16, which is faster where the processor multiplies it.
    """

    output: str
    systems: dict[str, SystemRecipe]
    retrieval: dict[str, RetrievalTask] = field(default_factory=dict)
    classification: dict[str, ClassificationTask] = field(default_factory=dict)
    published: str | None = None
    reference: str | None = None
    model_cards: list[str] = field(default_factory=list)
    dtype: Dtype = "float32"

    def __post_init__(self) -> None:
        if not self.retrieval and not self.classification:
            raise ValueError("retrieval and classification are both empty; name at least one task")
        both = self.retrieval.keys() & self.classification.keys()
        if both:
            raise ValueError(f"task {min(both)} is named twice; give the tasks of both kinds names of their own")
        for name in [*self.model_cards, *([self.reference] if self.reference else [])]:
            if name not in self.systems:
                raise ValueError(f"{name} is no system of this recipe; it has {', '.join(self.systems)}")


Result = dict[str, Any]
Results = dict[str, dict[str, Result]]  # by task and system


def main(argv: list[str] | None = None) -> None:
    recipe = auto_cli(EvaluationRecipe, args=argv, as_positional=False)
    check_systems(recipe.systems)
    cards = {name: model_card_of(recipe.systems[name]) for name in recipe.model_cards}
    published = read_published(Path(recipe.published)) if recipe.published else []
    # All data are read, and whatever is wrong with them is found, before anything is computed.
    retrieval = {name: prepared(recipe, name, task) for name, task in recipe.retrieval.items()}
    retrieval_sets = {name: task.read() for name, task in retrieval.items()}
    classification = {name: prepared(recipe, name, task) for name, task in recipe.classification.items()}
    labelled_sets = {name: task.read() for name, task in classification.items()}
    for name, task in classification.items():
        for classifier, models in task.finetuned.items():
            for model in models:
                check_labels(labelled_sets[name].tests, labels_of(classifier, model), f"the model {classifier}")
    results: Results = {}
    for name, task in retrieval.items():
        results[name] = run_retrieval(recipe, name, task, retrieval_sets[name])
    for name, task in classification.items():
        results[f"{name}-frozen"] = run_frozen(recipe, name, task, labelled_sets[name])
        results[f"{name}-finetuned"] = run_finetuned(recipe, name, task, labelled_sets[name])
    results = {name: systems for name, systems in results.items() if systems}
    measures = {name: task.measure for name, task in retrieval.items()}
    for name, task in classification.items():
        measures |= {f"{name}-{protocol}": task.measure for protocol in ("frozen", "finetuned")}
    plots = plot(recipe, results, measures)
    write_report(recipe, results, measures, published, plots)
    for name, file in cards.items():
        write_model_index(file, name, results, measures)


def prepared(recipe: EvaluationRecipe, name: str, task: Any) -> Any:
    """The task with its data in this project's format, converted if they are not and have not been."""
    if task.format == "hmde":
        return task
    folder = Path(recipe.output) / "data" / name
    done = folder / f"{fingerprint(asdict(task))}.done"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        prepare(task, folder)
        done.touch()
    return replace(task, data=str(folder), format="hmde")


def run_retrieval(
    recipe: EvaluationRecipe, name: str, task: RetrievalTask, retrieval_set: RetrievalSet
) -> dict[str, Result]:
    """The results of all systems on a task, computed or read; without systems that cannot do any of it."""
    data = fingerprint(asdict(task), fingerprint_of_folder(Path(task.data)), task.given_runs())
    results = {}
    for system, system_recipe in recipe.systems.items():
        maker = fingerprint_of_system(system_recipe, recipe.dtype)
        compute = partial(compute_retrieval, recipe, name, task, retrieval_set, system, maker)
        results[system] = once(result_file(recipe, name, system), fingerprint(maker, data), compute)
    return {system: result for system, result in results.items() if result["rows"]}


def compute_retrieval(
    recipe: EvaluationRecipe, name: str, task: RetrievalTask, retrieval_set: RetrievalSet, system: str, maker: str
) -> Result:
    output = Path(recipe.output)
    loaded = load_system(recipe.systems[system], recipe.dtype)
    result, runs = evaluate_task(loaded, task, retrieval_set, output / "cache", maker)
    for pair, run in runs.items():
        write_whole(output / "runs" / name / system / f"{pair}.run", to_trec(run, tag=system))
    return result


def run_frozen(
    recipe: EvaluationRecipe, name: str, task: ClassificationTask, labelled: LabelledSet
) -> dict[str, Result]:
    """The results of all systems that have vectors, computed or read."""
    data = fingerprint(asdict(task), fingerprint_of_folder(Path(task.data)))
    results = {}
    for system, system_recipe in recipe.systems.items():
        if system_recipe.kind != "bm25":
            maker = fingerprint_of_system(system_recipe, recipe.dtype)
            compute = partial(compute_frozen, recipe, name, task, labelled, system, maker)
            results[system] = once(result_file(recipe, f"{name}-frozen", system), fingerprint(maker, data), compute)
    return results


def compute_frozen(
    recipe: EvaluationRecipe, name: str, task: ClassificationTask, labelled: LabelledSet, system: str, maker: str
) -> Result:
    loaded = load_system(recipe.systems[system], recipe.dtype)
    assert not isinstance(loaded, BM25)
    cache = Path(recipe.output) / "cache"
    result = evaluate_frozen(loaded, task, labelled, cache, maker)
    if not task.multilabel:
        vectors = [encode(loaded, test, cache, maker) for test in labelled.tests]
        plot_vectors(system, labelled.tests, vectors, plot_of_vectors(recipe, name, system), SEED)
    return result


def plot_of_vectors(recipe: EvaluationRecipe, name: str, system: str) -> Path:
    return Path(recipe.output) / "plots" / f"{name}-{system}.png"


def run_finetuned(
    recipe: EvaluationRecipe, name: str, task: ClassificationTask, labelled: LabelledSet
) -> dict[str, Result]:
    """The results of all classifiers that were trained as a whole, computed or read."""
    data = fingerprint(asdict(task), fingerprint_of_folder(Path(task.data)))
    results = {}
    for classifier, models in task.finetuned.items():
        makers = fingerprint(recipe.dtype, fingerprint_of_code(), *map(fingerprint_of_model, models))
        compute = partial(evaluate_finetuned, models, task, labelled, recipe.dtype)
        path = result_file(recipe, f"{name}-finetuned", classifier)
        results[classifier] = once(path, fingerprint(makers, data), compute)
    return results


def result_file(recipe: EvaluationRecipe, task: str, system: str) -> Path:
    return Path(recipe.output) / "results" / task / f"{system}.json"


def fingerprint_of_system(system: SystemRecipe, dtype: Dtype) -> str:
    """Of all that the vectors of a system depend on."""
    model = fingerprint_of_model(system.model) if system.model else None
    return fingerprint(asdict(system), dtype, model, fingerprint_of_code())


def once(path: Path, name: str, compute: Callable[[], Result]) -> Result:
    """A result that is read if it was computed of the same things, else computed and kept."""
    if path.exists():
        result: Result = json.loads(path.read_text(encoding="utf-8"))
        if result["fingerprint"] == name:
            return result
    result = {"fingerprint": name, **compute()}
    write_json(path, result)
    return result


def plot(recipe: EvaluationRecipe, results: Results, measures: dict[str, str]) -> list[Path]:
    """All plots that the results allow, those of vectors as they were made with the results."""
    folder = Path(recipe.output) / "plots"
    colour_of = colours(system for systems in results.values() for system in systems)  # the same in all plots
    paths = []
    averages = {
        f"{name}, {measures[name]}": {
            system: result["averages"]["average"][measures[name]]
            for system, result in systems.items()
            if "average" in result["averages"]
        }
        for name, systems in results.items()
    }
    if any(averages.values()):
        found_averages = {name: found for name, found in averages.items() if found}
        paths.append(plot_averages(found_averages, colour_of, folder / "averages.png"))
    for name, systems in results.items():
        rows = {
            system: {row: scores[measures[name]] for row, scores in result["rows"].items()}
            for system, result in systems.items()
        }
        paths.append(plot_rows(f"{measures[name]} on {name}", rows, colour_of, folder / f"{name}.png"))
    vectors = (plot_of_vectors(recipe, name, system) for name in recipe.classification for system in recipe.systems)
    return paths + [path for path in vectors if path.exists()]


def write_report(
    recipe: EvaluationRecipe, results: Results, measures: dict[str, str], published: list[Published], plots: list[Path]
) -> None:
    """Writes report.md and results.json, and shows the tables."""
    output = Path(recipe.output)
    reference = recipe.reference or list(recipe.systems)[-1]
    tables = [table_of(name, measures[name], systems, reference) for name, systems in results.items()]
    widths = [table_of_intervals(name, measures[name], systems) for name, systems in results.items()]
    beside = [comparison(entry, results[entry.task]) for entry in published if entry.task in results]
    beside = [table for table in beside if table.scores]
    made = {
        "command": shlex.join(["python", "-m", "evaluation", *sys.argv[1:]]),
        "seed": SEED,
        "environment": environment(),
        "recipe": asdict(recipe),
    }
    kept = {
        name: {
            system: {key: value for key, value in result.items() if key != "per_item"}
            | {"intervals": intervals(result, measures[name])}
            for system, result in systems.items()
        }
        for name, systems in results.items()
    }
    write_json(output / "results.json", made | {"published": [asdict(entry) for entry in published], "tasks": kept})
    sections = {
        "Scores": [table.to_markdown() for table in tables],
        "Beside published numbers": [table.to_markdown() for table in beside],
        "How sure": [table.to_markdown() for table in widths if any(table.scores.values())],
        "Plots": [f"![{path.stem}](plots/{path.name})\n" for path in plots],
        "How it was made": [f"```yaml\n{yaml.safe_dump(made, sort_keys=False, allow_unicode=True)}```\n"],
    }
    lines = ["# Evaluation\n"]
    for title, parts in sections.items():
        lines += [f"## {title}\n", *parts] if parts else []
    write_whole(output / "report.md", "\n".join(lines))
    show([*tables, *beside])


def table_of(name: str, measure: str, systems: dict[str, Result], reference: str) -> Table:
    """The scores of all systems on a task, marked where they differ from the reference's."""
    marks: dict[str, dict[str, str]] = {}
    note = ""
    if reference in systems:
        own = values_of(systems[reference], measure)
        for system in systems:
            found = paired_p_values(values_of(systems[system], measure), own)
            marks[system] = {row: "*" for row, p_value in found.items() if p_value < SIGNIFICANCE_LEVEL}
        note = f"\\* differs from {reference}: paired t-test, corrected over the rows, p < {SIGNIFICANCE_LEVEL}."
    protocols = dict.fromkeys(result["protocol"] for result in systems.values())
    scores = {system: column(result, measure) for system, result in systems.items()}
    return Table(f"{measure} on {name}, {'; '.join(protocols)}", "", scores, marks, note)


def table_of_intervals(name: str, measure: str, systems: dict[str, Result]) -> Table:
    """Half the width of the bootstrap interval of each row."""
    scores = {
        system: {row: (high - low) / 2 for row, (low, high) in intervals(result, measure).items()}
        for system, result in systems.items()
    }
    return Table(f"{measure} on {name}, half the 95 % bootstrap interval", "", scores)


def intervals(result: Result, measure: str) -> dict[str, tuple[float, float]]:
    return {row: bootstrap_interval(values, SEED) for row, values in values_of(result, measure).items()}


def values_of(result: Result, measure: str) -> dict[str, dict[str, float]]:
    """Values by row and by query or document; none of a measure, such as F1, that is no mean over documents."""
    return {row: values[measure] for row, values in result["per_item"].items() if measure in values}


def column(result: Result, measure: str) -> dict[str, float]:
    """The scores of one measure by row, averages behind them, and how much of the pool's first ten is in the query's
    language."""
    found = {row: scores[measure] for row, scores in (result["rows"] | result["averages"]).items()}
    own = {
        f"{row}, share of own language in the first ten": scores["own_language@10"]
        for row, scores in result["rows"].items()
        if "own_language@10" in scores
    }
    return found | own


def model_card_of(system: SystemRecipe) -> Path:
    """Raises:
    ValueError: the system is no folder with a card.
    """
    file = Path(system.model) / "README.md"
    if not file.is_file():
        raise ValueError(f"{file} is missing; only a system that is a folder with a model card can be in model_cards")
    return file


def write_model_index(file: Path, system: str, results: Results, measures: dict[str, str]) -> None:
    """Puts the averages of a system into the model-index of a card, in place of earlier ones of the same tasks."""
    card = ModelCard.load(file)
    found = [
        EvalResult(
            task_type="text-classification" if "C" in systems[system] else "text-retrieval",
            dataset_type=name,
            dataset_name=f"{name} ({systems[system]['protocol']})",
            metric_type=measures[name].lower(),
            metric_name=f"{measures[name]} ({group})",
            metric_value=round(scores[measures[name]], 4),
        )
        for name, systems in results.items()
        if system in systems
        for group, scores in systems[system]["averages"].items()
    ]
    others = [old for old in card.data.eval_results or [] if old.dataset_type not in results]
    card.data.eval_results = others + found
    card.data.model_name = card.data.model_name or file.parent.name
    card.save(file)


if __name__ == "__main__":
    main()
