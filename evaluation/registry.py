"""The kinds of systems and tasks that a recipe can name. A new kind is a dataclass of options, a module and a line here
or, outside this folder,

    SYSTEMS["longformer"] = Kind(LongformerOptions, "replications.longformer.system")
    TASKS["questions"] = Kind(QuestionTask, "replications.question_answering.evaluation")

Imports nothing heavy: a module is imported when its kind is first used.

The module of a kind of systems has

    check(name, options)                refuses a bad model by a ValueError that begins with the name
    load(options, dtype)                the system, see evaluation/systems

The module of a kind of tasks has

    read(task)                          its data, checked
    evaluate_system(system, task, data, run)        a result, of a system whose weights are left as they are
    evaluate_models(models, task, data, dtype, bar) a result, of models that were fine-tuned for the task

and needs only what its options allow: `takes` says which systems, `finetuned` names models.
"""

from __future__ import annotations

from argparse import ArgumentError
from collections.abc import Mapping
from dataclasses import field, fields, make_dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple, get_type_hints

from jsonargparse import ArgumentParser

from evaluation import recipes


class Kind(NamedTuple):
    """
    options: a dataclass, what a recipe can say of a system or task of this kind.
    module: what computes it.
    """

    options: type
    module: str


SYSTEMS = {
    "hmde": Kind(recipes.HMDEOptions, "evaluation.systems.hmde"),
    "first": Kind(recipes.FirstOptions, "evaluation.systems.pieces"),
    "windows": Kind(recipes.WindowsOptions, "evaluation.systems.pieces"),
    "sentences": Kind(recipes.SentencesOptions, "evaluation.systems.pieces"),
    "weighted_sentences": Kind(recipes.WeightedSentencesOptions, "evaluation.systems.pieces"),
    "passages": Kind(recipes.PassagesOptions, "evaluation.systems.pieces"),
    "sentence_transformers": Kind(recipes.SentenceTransformersOptions, "evaluation.systems.sentence_transformers"),
    "bm25": Kind(recipes.BM25Options, "evaluation.systems.bm25"),
    "hybrid": Kind(recipes.HybridOptions, "evaluation.systems.search"),
    "late": Kind(recipes.LateOptions, "evaluation.systems.search"),
}

TASKS = {
    "retrieval": Kind(recipes.RetrievalTask, "evaluation.tasks.retrieval"),
    "classification": Kind(recipes.ClassificationTask, "evaluation.tasks.classification"),
}


def kind_of(kinds: Mapping[str, Kind], options: object) -> str:
    return next(name for name, kind in kinds.items() if kind.options is type(options))


def module_of(kinds: Mapping[str, Kind], options: object) -> Any:
    return import_module(kinds[kind_of(kinds, options)].module)


def system_options(kind: str, name: str = "system", **values: Any) -> Any:
    """The options of a system of some kind. A value of None is left to the kind's default.

    Args:
        name: of the system, for errors.

    Raises:
        ValueError: there is no such kind, or it has no such option, needs another, or takes no such value.
    """
    if kind not in SYSTEMS:
        raise ValueError(f"{name}: kind is {kind!r}; it must be one of {', '.join(SYSTEMS)}")
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument(f"--{kind}", type=SYSTEMS[kind].options)
    given = {option: value for option, value in values.items() if value is not None}
    try:
        return parser.instantiate(parser.parse_object({kind: given}))[kind]
    except (ArgumentError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None


def recipe_type(base: Any, systems: Mapping[str, Kind], tasks: Mapping[str, Kind] = {}) -> Any:
    """A recipe whose `systems` are of some kinds, and which has a section of tasks for each of some kinds.

    To the command line a system has the options of all kinds. Which of them its own kind has, `system_options` says.
    """
    hints: dict[str, Any] = {}  # None, beside the types of the kinds, is for what is not given
    for kind in systems.values():
        known = get_type_hints(kind.options)
        for option in fields(kind.options):
            if option.init:
                hints[option.name] = hints.get(option.name) | known[option.name]
    options = [(name, hint, None) for name, hint in hints.items()]
    system = make_dataclass(f"{base.__name__}System", [("kind", Literal[tuple(systems)]), *options])
    system.__module__, globals()[system.__name__] = __name__, system  # where jsonargparse looks a type up by its name
    sections: Any = [(name, dict[str, kind.options], field(default_factory=dict)) for name, kind in tasks.items()]  # type: ignore[name-defined]
    recipe = make_dataclass(base.__name__, [("systems", dict[str, system]), *sections], bases=(base,))  # type: ignore[valid-type]
    recipe.__doc__ = base.__doc__.rstrip() + "".join(f"\n        {name}: tasks by name." for name in tasks)
    return recipe
