"""Every recipe of configuration/ fills the dataclass of the command that it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.choices import ChoicesBenchmark, on_command_line
from common.command_line import options_from
from evaluation.attribution import AttributionRecipe
from evaluation.recipes import EvaluationRecipe
from evaluation.registry import SYSTEMS, TASKS, recipe_type
from modeling_hmde import HMDEConfig
from replications import evaluate  # noqa: F401  # registers the kinds of the replications
from replications.longformer.pretrain import LongformerRecipe
from replications.question_answering.finetune import FinetuneQuestionsRecipe
from tests.paths import REPOSITORY
from training.corpus.recipe import CorpusRecipe
from training.finetune import FinetuneRecipe
from training.pretrain_recipe import PretrainRecipe
from training.recipes import PretrainSentencesRecipe

CONFIGURATION = REPOSITORY / "configuration"
RECIPES = {
    "benchmarks": ChoicesBenchmark,
    "corpora": CorpusRecipe,
    "evaluate": recipe_type(EvaluationRecipe, SYSTEMS, TASKS),
    "finetune": FinetuneRecipe,
    "longformer": LongformerRecipe,
    "pretrain": PretrainRecipe,
    "pretrain_sentences": PretrainSentencesRecipe,
}
OTHERS: dict[str, type] = {
    "xquad-attribution": recipe_type(AttributionRecipe, SYSTEMS),
    "squad": FinetuneQuestionsRecipe,
}
FILES = sorted(path for folder in RECIPES for path in (CONFIGURATION / folder).glob("*.yaml"))
NO_RECIPE = {"published.yaml", "published-sentences.yaml", "published-translators.yaml"}  # numbers of the papers


def fill(recipe: type, path: Path, *options: str) -> Any:
    return options_from(recipe, ["--config", str(path), *options])


@pytest.mark.parametrize("path", [path for path in FILES if path.name not in NO_RECIPE], ids=lambda path: path.stem)
def test_a_recipe_is_what_its_command_reads(path: Path) -> None:
    recipe = OTHERS.get(path.stem, RECIPES[path.parent.name])
    assert isinstance(fill(recipe, path), recipe)


@pytest.mark.parametrize("path", sorted((CONFIGURATION / "pretrain").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_pretraining_recipe_names_an_architecture_that_there_is(path: Path) -> None:
    HMDEConfig(**fill(PretrainRecipe, path).architecture)


def test_each_choice_changes_what_the_recipe_has() -> None:
    benchmark = fill(ChoicesBenchmark, CONFIGURATION / "benchmarks" / "choices.yaml")
    for choice in benchmark.choices.values():
        recipe = fill(PretrainRecipe, CONFIGURATION / "pretrain" / "e5-small.yaml", *on_command_line(choice))
        HMDEConfig(**recipe.architecture)
