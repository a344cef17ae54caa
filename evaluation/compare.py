"""Every system meets every task, and nothing is computed twice.

A result is kept with a fingerprint of all that it depends on: the system and its model's files, the task and its data,
the code, and the versions of the libraries.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

import hmde.index
from evaluation.datasets import converted
from evaluation.model_index import card_file, write_model_index
from evaluation.recipes import EvaluationRecipe, SystemOptions, TaskOptions
from evaluation.registry import TASKS
from evaluation.report import Result, Results, write_comparison
from evaluation.systems import check_name, check_systems, load_system, module_of
from evaluation.tables import environment
from evaluation.tasks import SystemRun
from hmde.common.device import device, dtype_of
from hmde.common.files import locked, write_json
from hmde.common.fingerprints import (
    digest,
    fingerprint,
    fingerprint_of_code,
    fingerprint_of_folder,
    fingerprint_of_model,
)

QUERY_OPTIONS = ("query_prompt",)  # which change no vector of a document


@dataclass
class TaskWithData:
    """A task whose data are read.

    Args:
        name: in the recipe.
        module: what computes it, see evaluation/registry.py.
        options: of the task, its data in this project's format.
        data: what the module reads.
        fingerprint: of the options, the files of the data, and the code that evaluates.
    """

    name: str
    module: Any
    options: Any
    data: Any
    fingerprint: str


def compare(recipe: EvaluationRecipe) -> Results:
    """Compute what is missing, write the report, and return all results.

    Raises:
        ValueError: something is wrong with recipe, models or data. This is found before anything is computed.
    """
    if not sys.stderr.isatty():
        disable_progress_bar()  # of models that are loaded
    named = [(name, kind, options) for kind in TASKS for name, options in getattr(recipe, kind, {}).items()]
    check_names([name for name, _, _ in named])
    check_systems(recipe.systems)
    for _, _, options in named:
        if options.systems:
            check_systems(options.systems)
    cards = {name: card_file(recipe.systems[name].model) for name in recipe.model_cards}
    tasks = [read_task(Path(recipe.output), *task) for task in named]

    dtype = dtype_of(recipe.dtype)
    print(f"computed in {str(dtype).removeprefix('torch.')} on {device()}")
    results: Results = {task.name: {} for task in tasks}
    for task_name, name, result in results_of_systems(recipe, tasks, dtype):
        if result["rows"]:  # BM25 has none on pairs of two languages
            results[task_name][name] = result
    results = {task: task_results for task, task_results in results.items() if task_results}

    whole = asdict(recipe) | {"systems": {name: system.given for name, system in recipe.systems.items()}}
    write_comparison(whole, results)
    for name, file in cards.items():
        write_model_index(file, name, recipe.systems[name].model, results)
    return results


def results_of_systems(
    recipe: EvaluationRecipe, tasks: Sequence[TaskWithData], dtype: torch.dtype
) -> Iterator[tuple[str, str, Result]]:
    """Every system on every task that takes it, then the systems of single tasks: the name of the task, the system's,
    and the result. A system is loaded when it is first needed, and all models are looked up before."""
    compared = [(*named, [one for one in tasks if one.options.takes(named[1])]) for named in recipe.systems.items()]
    compared += [(*named, [task]) for task in tasks for named in task.options.systems.items()]
    models = {system.model: fingerprint_of_model(system.model) for _, system, _ in compared if system.model}
    for name, system, on_tasks in compared:
        own = {model: models[model] for model in [system.model] if model}
        load = cache(partial(load_system, system, dtype))
        keys = [fingerprint_of_system(system, dtype, own, without) for without in ((), QUERY_OPTIONS)]
        for task in on_tasks:
            run = SystemRun(Path(recipe.output), task.name, name, *keys)
            kept = run.output / "results" / task.name / f"{name}.json"
            compute = partial(evaluate_system, load, task, run)
            yield task.name, name, kept_result(kept, fingerprint(task.fingerprint, keys[0]), own, compute)


def check_names(tasks: Sequence[str]) -> None:
    """
    Raises:
        ValueError: there is no task, a name cannot be part of a path, or two tasks have one name.
    """
    for name in tasks:
        check_name("task", name)
    if not tasks or len({*tasks}) < len(tasks):
        raise ValueError(f"the tasks of {', '.join(TASKS)} are {tasks}; name at least one, and no two alike")


def evaluate_system(load: Callable[[], Any], task: TaskWithData, run: SystemRun) -> Result:
    """What a task says of a system, which is loaded when it is first needed."""
    return task.module.evaluate_system(load(), task.options, task.data, run)


def read_task(output: Path, name: str, kind: str, options: TaskOptions) -> TaskWithData:
    """The data of a task: converted into this project's format, if they are in another one and new or changed; then
    read and checked."""
    module: Any = import_module(TASKS[kind])
    if getattr(options, "format", "hmde") != "hmde":
        options = converted(output / "data" / name, options)
    data = module.read(options)
    content = [fingerprint_of_folder(Path(folder)) for folder in options.folders]
    code = [fingerprint_of_folder(Path(__file__).parent, "*.py"), digest(Path(module.__file__))]
    key = fingerprint(replace(options, data=""), content, code)  # type: ignore[type-var]
    return TaskWithData(name, module, options, data, key)


def fingerprint_of_system(
    system: SystemOptions, dtype: torch.dtype, models: dict[str, str], without: Collection[str]
) -> str:
    """Hashes the kind and its options, except those in `without`, the models' files, and what computes them."""
    options = {name: value for name, value in system.given.items() if name not in {*without, "model"}}
    code = [digest(Path(module_of(system).__file__))]  # which may lie in another folder
    if system.ranks:
        code.append(fingerprint_of_folder(Path(hmde.index.__file__).parent, "*.py"))
    return fingerprint(fingerprint_of_computation(dtype), code, [*models.values()], options)


def fingerprint_of_computation(dtype: torch.dtype) -> str:
    """Hashes the dtype, the code that makes vectors, and the versions of the libraries."""
    code = [fingerprint_of_code(), fingerprint_of_folder(Path(__file__).parent / "systems", "*.py")]
    return fingerprint(dtype, code, environment()["packages"])


def kept_result(path: Path, key: str, models: dict[str, str], compute: Callable[[], Result]) -> Result:
    """A result: read if it was made from the same things, else computed and kept.

    Args:
        path: of the file that keeps it.
        key: of all that it depends on.
        models: the fingerprint of each of its models, by folder or Hub name. The result names them, so that it is never
            taken for one of other models whose system has the same name.
    """
    with locked(path):
        if path.exists():
            kept: Result = json.loads(path.read_text(encoding="utf-8"))
            if kept["fingerprint"] == key:
                return kept
        result = {"fingerprint": key, "models": models, **compute()}
        write_json(path, result)
    return result
