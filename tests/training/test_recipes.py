"""Every recipe of configuration/ and replications/ fills the dataclass of the command that it is for."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.attribution import AttributionRecipe
from benchmarks.encode import EncodeBenchmark
from hmde.common.command_line import options_from
from modeling_hmde import HMDEConfig
from replications.evaluation_recipe import ReplicationsRecipe
from replications.longformer.pretrain import LongformerRecipe
from replications.sentences.pretrain import PretrainSentencesRecipe
from replications.t_mde.pretrain import TMDERecipe
from replications.topics.finetune import FinetuneRecipe
from replications.wikipedia.articles import WikipediaRecipe
from tests.paths import REPOSITORY
from training.corpus.recipe import CorpusRecipe
from training.pretrain_recipe import PretrainRecipe

CONFIGURATION = REPOSITORY / "configuration"
RECIPES: dict[str, type] = {  # by the beginning of a file's path
    "configuration/benchmarks/attribution": AttributionRecipe,
    "configuration/benchmarks/encode": EncodeBenchmark,
    "configuration/corpora/": CorpusRecipe,
    "configuration/evaluate/": ReplicationsRecipe,
    "configuration/finetune/": FinetuneRecipe,
    "configuration/pretrain/": PretrainRecipe,
    "replications/sentences/student": PretrainSentencesRecipe,
    "replications/longformer/": LongformerRecipe,
    "replications/t_mde/evaluate": ReplicationsRecipe,
    "replications/t_mde/t-mde": TMDERecipe,
    "replications/wikipedia/": WikipediaRecipe,
}
FILES = [
    path
    for folder in ("configuration", "replications")
    for path in sorted((REPOSITORY / folder).rglob("*.yaml"))
    # numbers of papers, what is put on top of another recipe, and not our recipes
    if not path.name.endswith(("published.yaml", "authors.yaml")) and path.parent.name != "accelerate"
]


def fill(recipe: type, path: Path, *options: str) -> Any:
    return options_from(recipe, ["--config", str(path), *options])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recipe_is_what_its_command_reads(path: Path) -> None:
    name = str(path.relative_to(REPOSITORY))
    recipe = next(recipe for start, recipe in RECIPES.items() if name.startswith(start))
    assert isinstance(fill(recipe, path), recipe)


REPLICATIONS = REPOSITORY / "replications"


def test_t_mde_keeps_its_last_step() -> None:
    assert fill(TMDERecipe, REPLICATIONS / "t_mde" / "t-mde.yaml").keep == "last"


@pytest.mark.parametrize(
    "name",
    [
        "configuration/evaluate/paper.yaml",
        "replications/t_mde/evaluate.yaml",
    ],
)
def test_the_tables_of_a_paper_are_computed_in_float32_unless_the_command_line_says_otherwise(name: str) -> None:
    assert fill(ReplicationsRecipe, REPOSITORY / name).dtype == "float32"
    assert fill(ReplicationsRecipe, REPOSITORY / name, "--dtype", "auto").dtype == "auto"


@pytest.mark.parametrize("path", sorted((CONFIGURATION / "pretrain").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_pretraining_recipe_names_an_architecture_that_there_is(path: Path) -> None:
    HMDEConfig(**architecture(path))


def test_a_prompt_with_a_colon_is_a_prompt(tmp_path: Path) -> None:
    """And not a mapping, as YAML within YAML would have it."""
    (tmp_path / "recipe.yaml").write_text('corpus: c\noutput: o\ntokenizer: {query_prompt: "Instruct: find\\nQuery:"}')
    assert fill(PretrainRecipe, tmp_path / "recipe.yaml").tokenizer == {"query_prompt": "Instruct: find\nQuery:"}


@cache
def pretraining_recipe(path: Path) -> PretrainRecipe:
    return fill(PretrainRecipe, path)


def architecture(path: Path) -> dict[str, Any]:
    """The architecture of a recipe, on top of that of the recipe whose model it starts from."""
    recipe = pretraining_recipe(path)
    starts = [
        other for other in path.parent.glob("*.yaml") if pretraining_recipe(other).output == recipe.sentence_encoder
    ]
    return (architecture(starts[0]) if starts else {}) | recipe.architecture
