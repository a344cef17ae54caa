"""The model that a recipe describes: its dropout, and the options of its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.encoder_families import FAMILIES, save_family
from training.models import build
from training.pretrain_recipe import PretrainRecipe

ARCHITECTURE: dict[str, Any] = {"num_document_attention_heads": 4, "document_intermediate_size": 64}


def same_twice(encoder: Path, **changes: Any) -> bool:
    """Whether a sentence encoder that is trained gives a text the same vectors twice."""
    recipe = PretrainRecipe(
        corpus="", output="", sentence_encoder=str(encoder), architecture=ARCHITECTURE.copy(), **changes
    )
    model, tokenizer = build(recipe)
    model.train()
    rows = tokenizer(["The cat sat. It was warm.", "It was on the mat."], padding=True, return_tensors="pt")
    with torch.no_grad():
        one, other = (model.hmde.encode_sentences(**rows)[1] for _ in range(2))
    return torch.equal(one, other)


@pytest.mark.parametrize("name", ["bert", "t5", "mt5", "umt5", "llama", "nomic"])
def test_dropout_of_the_sentence_encoder_is_that_of_the_recipe_and_none_where_it_is_frozen(
    name: str, tmp_path: Path
) -> None:
    folder = save_family(FAMILIES[name], tmp_path)
    assert same_twice(folder, sentence_dropout=0.0)
    assert not same_twice(folder, sentence_dropout=0.5)
    assert same_twice(folder, freeze="sentence_encoder", sentence_dropout=0.5)


def test_an_unknown_option_of_the_tokenizer_is_named_beside_those_known(labse: Path) -> None:
    recipe = PretrainRecipe(corpus="", output="", sentence_encoder=str(labse), architecture=ARCHITECTURE)
    recipe.tokenizer = {"segmentaton": "windows"}
    with pytest.raises(ValueError, match=r"^tokenizer: segmentaton is no option; those known are .*segmentation, "):
        build(recipe)
    recipe.tokenizer = {"segmentation": "windows", "query_prompt": "query: "}
    tokenizer = build(recipe)[1]
    assert (tokenizer.segmentation, tokenizer.query_prompt) == ("windows", "query: ")
