"""Every system meets every task, and nothing is computed twice.

A result is kept with a fingerprint of all that it depends on: the system and its model's files, the task and its data,
the code, and the versions of the libraries.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

import hmde.index
from evaluation import datasets
from evaluation.model_index import card_file, write_model_index
from evaluation.recipes import EvaluationRecipe, SystemOptions, TaskOptions
from evaluation.registry import TASKS
from evaluation.report import Result, Results, write_comparison
from evaluation.systems import check_name, check_systems, load_system, module_of
from evaluation.tables import environment
from evaluation.tasks import SystemRun
from hmde.common.device import device, dtype_of
from hmde.common.files import folder_written_whole, locked, write_json
from hmde.common.fingerprints import (
    digest,
    fingerprint,
    fingerprint_of_code,
    fingerprint_of_folder,
    fingerprint_of_model,
)

QUERY_OPTIONS = ("query_path", "query_prompt")  # which change no vector of a document


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
    check_names(named)
    check_systems(recipe.systems)
    cards = {name: card_file(recipe.systems[name].model) for name in recipe.model_cards}
    tasks = [read_task(Path(recipe.output), *task) for task in named]

    finetuned = [(task, name, runs) for task in tasks for name, runs in getattr(task.options, "finetuned", {}).items()]
    used = {system.model for system in recipe.systems.values() if system.model}
    used |= {model for _, _, runs in finetuned for model in runs}
    fingerprints = {model: fingerprint_of_model(model) for model in used}

    dtype = dtype_of(recipe.dtype)
    print(f"computed in {str(dtype).removeprefix('torch.')} on {device()}")
    results: Results = {}
    for task in tasks:
        for suffix in (task.options.results_of_systems, task.options.results_of_models):
            results[task.name + suffix] = {}
    for name, system in recipe.systems.items():
        models = {system.model: fingerprints[system.model]} if system.model else {}
        load = cache(partial(load_system, system, dtype))
        cache_key = fingerprint_of_system(system, dtype, models)
        document_cache_key = fingerprint_of_system(system, dtype, models, without=QUERY_OPTIONS)
        for task in tasks:
            if task.options.takes(system):
                result_name = task.name + task.options.results_of_systems
                run = SystemRun(Path(recipe.output), task.name, name, cache_key, document_cache_key)
                results[result_name][name] = kept_result(
                    Path(recipe.output) / "results" / result_name / f"{name}.json",
                    fingerprint(task.fingerprint, cache_key, models),
                    models,
                    partial(evaluate_system, load, task, run),
                )
    for task, name, runs in finetuned:
        result_name = task.name + task.options.results_of_models
        models = {model: fingerprints[model] for model in runs}
        results[result_name][name] = kept_result(
            Path(recipe.output) / "results" / result_name / f"{name}.json",
            fingerprint(task.fingerprint, fingerprint_of_computation(dtype), models),
            models,
            partial(task.module.evaluate_models, runs, task.options, task.data, dtype, f"{task.name}, {name}"),
        )
    for task_results in results.values():
        for name in [name for name, result in task_results.items() if not result["rows"]]:
            del task_results[name]  # such as BM25 on pairs of two languages
    results = {task: task_results for task, task_results in results.items() if task_results}

    whole = asdict(recipe) | {"systems": {name: system.given for name, system in recipe.systems.items()}}
    write_comparison(whole, results)
    for name, file in cards.items():
        write_model_index(file, name, recipe.systems[name].model, results)
    return results


def check_names(tasks: list[tuple[str, str, TaskOptions]]) -> None:
    """
    Raises:
        ValueError: there is no task, a name cannot be part of a path, or two tasks write to the same folders.
    """
    folders: list[str] = []
    for name, _, options in tasks:
        check_name("task", name)
        for classifier in getattr(options, "finetuned", {}):
            check_name("finetuned", classifier)
        folders += dict.fromkeys((name, name + options.results_of_systems, name + options.results_of_models))
    if not folders or len({*folders}) < len(folders):
        raise ValueError(
            f"the folders of the tasks of {', '.join(TASKS)} are {folders}; name at least one task, and no two whose "
            "folders are alike"
        )


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


def converted(folder: Path, options: Any) -> Any:
    """The task with its data in this project's format."""
    source = Path(options.data)
    content = digest(source) if source.is_file() else fingerprint_of_folder(source)
    module = Path(str(datasets.module_of(options).__file__))
    code = [fingerprint_of_folder(Path(file).parent, "*.py") for file in (datasets.__file__, module)]
    done = f"{fingerprint(options, content, code)}.done"
    with locked(folder):
        if not (folder / done).exists():
            with folder_written_whole(folder) as new:
                datasets.module_of(options).convert(options, new)
                (new / done).touch()
    return replace(options, data=str(folder), format="hmde")


def fingerprint_of_system(
    system: SystemOptions, dtype: torch.dtype, models: dict[str, str], without: tuple[str, ...] = ()
) -> str:
    """Hashes the kind and its options, except those in `without`, the models' files, and what computes them."""
    options = {name: value for name, value in system.given.items() if name not in (*without, "model")}
    ranked_by = fingerprint_of_folder(Path(hmde.index.__file__).parent, "*.py") if system.ranks else ""
    code = digest(Path(module_of(system).__file__))  # which may lie in another folder
    computed_by = [fingerprint_of_computation(dtype), ranked_by, code]
    return fingerprint(computed_by, [*models.values()], options)


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
