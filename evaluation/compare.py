"""Every system meets every task, and nothing is computed twice.

A result is kept with a fingerprint of all that it depends on: the system and its model's files, the task and its data,
the code, and the versions of the libraries.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

import search
from common.device import device, dtype_of
from common.files import folder_written_whole, locked, write_json, write_text
from common.fingerprints import (
    digest,
    fingerprint,
    fingerprint_of_code,
    fingerprint_of_folder,
    fingerprint_of_model,
)
from common.progress import progress_bar
from common.saved_models import model_type_of
from evaluation import systems, vectors
from evaluation.datasets import conversion
from evaluation.datasets.files import read_retrieval_sets
from evaluation.model_index import model_card_of, write_model_index
from evaluation.plots import plot_vectors
from evaluation.published import read_published
from evaluation.questions import evaluate_answers, read_question_set
from evaluation.recipes import RANKING_KINDS, ClassificationTask, EvaluationRecipe, QuestionTask, RetrievalTask
from evaluation.report import SEED, Result, Results, write_comparison
from evaluation.systems import check_systems, load_system
from evaluation.tables import environment
from evaluation.tasks.classification import (
    check_labels,
    encode,
    evaluate_finetuned,
    evaluate_frozen,
    labels_of,
    read_labelled_set,
)
from evaluation.tasks.retrieval import evaluate_task, given_runs, to_trec


@dataclass
class TaskWithData:
    """A task whose data are read.

    Args:
        name: in the recipe.
        task: with its data in this project's format.
        data: a RetrievalSet by pair, a LabelledSet, or questions by language.
        fingerprint: of the task, the files of its data, and the code that evaluates.
    """

    name: str
    task: Any
    data: Any
    fingerprint: str


@dataclass
class Maker:
    """Who makes a result: a system of the recipe, or a model that was trained as a whole.

    Args:
        name: in the recipe.
        models: the fingerprint of each of its models, by folder or Hub name.
        fingerprint: of all that its vectors or predictions depend on.
        of_documents: of all that its vectors of documents depend on; systems that differ in their queries share them.
        load: the system, loaded once, when it is first needed. A model that was trained as a whole has neither.
    """

    name: str
    models: dict[str, str]
    fingerprint: str
    of_documents: str = ""
    load: Any = None


def compare(recipe: EvaluationRecipe) -> None:
    """Compute what is missing, and write the report.

    Raises:
        ValueError: something is wrong with recipe, models or data. This is found before anything is computed.
    """
    if not sys.stderr.isatty():
        disable_progress_bar()  # of models that are loaded
    check_systems(recipe.systems)
    cards = {name: model_card_of(recipe.systems[name]) for name in recipe.model_cards}
    published = read_published(Path(recipe.published)) if recipe.published else []
    retrieval = [read_retrieval_task(recipe, name, task) for name, task in recipe.retrieval.items()]
    classification = [read_classification_task(recipe, name, task) for name, task in recipe.classification.items()]
    questions = [read_question_task(name, task) for name, task in recipe.questions.items()]

    results: Results = {task.name: {} for task in [*retrieval, *questions]}
    results |= {f"{task.name}-{protocol}": {} for task in classification for protocol in ("frozen", "finetuned")}
    dtype = dtype_of(recipe.dtype)
    print(f"computed in {str(dtype).removeprefix('torch.')} on {device()}")
    fingerprint_once = cache(fingerprint_of_model)
    made_with = fingerprint_of_computation(dtype)
    for name, system in recipe.systems.items():
        models = {system.model: fingerprint_once(system.model)} if system.model else {}
        ranked_by = fingerprint_of_folder(Path(search.__file__).parent, "*.py") if system.kind in RANKING_KINDS else ""
        fingerprint_of = partial(fingerprint, made_with, ranked_by, *models.values())
        whole = replace(system, model="")
        of_documents = replace(whole, query_path=None, query_prompt="")
        load = cache(partial(load_system, system, dtype))
        maker = Maker(name, models, fingerprint_of(whole), fingerprint_of(of_documents), load)
        for task in retrieval:
            results[task.name][name] = retrieval_result(recipe, task, maker)
        for task in classification:
            if system.kind not in RANKING_KINDS and task.task.train_languages:
                results[f"{task.name}-frozen"][name] = frozen_result(recipe, task, maker)
    trained: list[tuple[TaskWithData, str, Callable[..., Result]]] = [
        *((task, f"{task.name}-finetuned", evaluate_finetuned) for task in classification),
        *((task, task.name, evaluate_answers) for task in questions),
    ]
    for task, result_name, evaluate in trained:
        for name, folders in task.task.finetuned.items():
            models = {folder: fingerprint_once(folder) for folder in folders}
            maker = Maker(name, models, fingerprint(made_with, *models.values()))
            compute = partial(evaluate, folders, task.task, task.data, dtype, f"{task.name}, {name}")
            results[result_name][name] = once(recipe, result_name, task, maker, compute)
    for of_task in results.values():
        for name in [name for name, result in of_task.items() if not result["rows"]]:
            del of_task[name]  # such as BM25 on pairs of two languages
    results = {task: of_task for task, of_task in results.items() if of_task}

    write_comparison(recipe, results, published)
    for name, file in cards.items():
        write_model_index(file, name, recipe.systems[name], results)


def read_retrieval_task(recipe: EvaluationRecipe, name: str, task: RetrievalTask) -> TaskWithData:
    task = prepared(recipe, name, task)
    data = read_retrieval_sets(task.data, task.pairs, task.split, task.sought_by)
    return TaskWithData(name, task, data, fingerprint_of_task(task, given_runs(task)))


def read_classification_task(recipe: EvaluationRecipe, name: str, task: ClassificationTask) -> TaskWithData:
    task = prepared(recipe, name, task)
    data = read_labelled_set(task)
    for classifier, models in task.finetuned.items():
        for model in models:
            check_labels(data.tests, labels_of(classifier, model), f"the model {classifier}")
    return TaskWithData(name, task, data, fingerprint_of_task(task))


def read_question_task(name: str, task: QuestionTask) -> TaskWithData:
    for answerer, models in task.finetuned.items():
        for model in models:
            model_type_of(answerer, model)
    return TaskWithData(name, task, read_question_set(task), fingerprint_of_task(task))


def prepared(recipe: EvaluationRecipe, name: str, task: Any) -> Any:
    """The task with its data in this project's format: converted, if they are in another format and new or changed."""
    if task.format == "hmde":
        return task
    source = Path(task.data)
    content = fingerprint_of_folder(source) if source.is_dir() else ""
    folder = Path(recipe.output) / "data" / name
    done = f"{fingerprint(task, content, digest(Path(conversion.__file__)))}.done"
    with locked(folder):
        if not (folder / done).exists():
            with folder_written_whole(folder) as new:
                conversion.prepare(task, new)
                (new / done).touch()
    return replace(task, data=str(folder), format="hmde")


def fingerprint_of_task(task: Any, given: object = None) -> str:
    """Of what is asked, the content of the data and of the runs given, and the code that evaluates."""
    data = fingerprint_of_folder(Path(task.data))
    return fingerprint(replace(task, data=data), given, fingerprint_of_folder(Path(__file__).parent, "*.py"))


def fingerprint_of_computation(dtype: torch.dtype) -> str:
    """Of the dtype, the code that makes vectors, and the versions of the libraries."""
    code = [fingerprint_of_code(), digest(Path(systems.__file__)), digest(Path(vectors.__file__))]
    return fingerprint(dtype, code, environment()["packages"])


def retrieval_result(recipe: EvaluationRecipe, task: TaskWithData, maker: Maker) -> Result:
    """Of a system on a retrieval task. Its rankings are written too."""
    output = Path(recipe.output)

    def compute() -> Result:
        system, bar = maker.load(), f"{task.name}, {maker.name}"
        all_are_queries = task.task.sought_by == "sentences"
        kept_for = maker.fingerprint if all_are_queries else maker.of_documents
        result, runs = evaluate_task(system, task.task, task.data, output / "cache", kept_for, bar)
        for pair, run in runs.items():
            write_text(output / "runs" / task.name / maker.name / f"{pair}.run", to_trec(run, tag=maker.name))
        return result

    return once(recipe, task.name, task, maker, compute)


def frozen_result(recipe: EvaluationRecipe, task: TaskWithData, maker: Maker) -> Result:
    """Of a system on a classification task, its vectors left as they are. They are plotted too."""
    output = Path(recipe.output)

    def compute() -> Result:
        system, bar = maker.load(), f"{task.name}, {maker.name}"
        result = evaluate_frozen(system, task.task, task.data, output / "cache", maker.of_documents, bar)
        if not task.task.multilabel:
            tests = task.data.tests
            result["plot"] = f"{task.name}-{maker.name}.png"
            with progress_bar(f"{bar}: plot", 1, "plot") as progress:
                of_tests = [encode(system, test, output / "cache", maker.of_documents) for test in tests]
                plot_vectors(maker.name, tests, of_tests, output / "plots" / result["plot"], SEED)
                progress.update()
        return result

    return once(recipe, f"{task.name}-frozen", task, maker, compute)


def once(
    recipe: EvaluationRecipe, name: str, task: TaskWithData, maker: Maker, compute: Callable[[], Result]
) -> Result:
    """A result: read if it was made from the same things, else computed and kept.

    It names the models that made it, so that it is never taken for one of other models whose system has the same name.
    """
    path = Path(recipe.output) / "results" / name / f"{maker.name}.json"
    key = fingerprint(task.fingerprint, maker.fingerprint, maker.models)
    with locked(path):
        if path.exists():
            kept: Result = json.loads(path.read_text(encoding="utf-8"))
            if kept["fingerprint"] == key:
                return kept
        result = {"fingerprint": key, "models": maker.models, **compute()}
        write_json(path, result)
    return result
