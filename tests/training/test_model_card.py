"""The card of a trained model, and its upload."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest
import yaml
from huggingface_hub import HfApi, ModelCard

from modeling_hmde import HMDEForDocumentEmbedding
from training import hub
from training.loop.loop import Progress
from training.model_card import write_model_card
from training.pretrain_recipe import PretrainRecipe


@pytest.fixture
def trained(model: HMDEForDocumentEmbedding, tmp_path: Path) -> SimpleNamespace:
    """The card of a training run, read back by huggingface_hub."""
    statistics = {"articles": {"en": 70, "de": 60}, "triples": {"train": 50}}
    (tmp_path / "wiki").mkdir()
    (tmp_path / "wiki" / "statistics.json").write_text(json.dumps(statistics), encoding="utf-8")
    model.config.save_pretrained(tmp_path)
    recipe = PretrainRecipe(
        corpus=str(tmp_path / "wiki"),
        output="someone/hmde",
        sentence_encoder="someone/encoder",
        eval_concepts=9,
        seed=3,
    )
    history = {
        0: {"document_mrr": 0.5, "title_mrr": 0.25, "mrr": 0.375},
        8: {"document_mrr": 0.75, "title_mrr": 0.5, "mrr": 0.625},
    }
    write_model_card(recipe, tmp_path, Progress("mrr", 8, history))
    return SimpleNamespace(card=ModelCard.load(tmp_path / "README.md"))


def test_the_card_of_a_training_run_says_what_it_was_made_of_and_what_was_measured(trained: SimpleNamespace) -> None:
    data, text = trained.card.data, trained.card.text
    assert data.base_model == "someone/encoder"
    assert data.language == ["de", "en"]
    assert [(each.metric_name, each.metric_value) for each in data.eval_results] == [
        ("MRR (document to document)", 0.75),
        ("MRR (title to document)", 0.5),
    ]
    for line in ("| sentence encoder | someone/encoder |", "| de | 60 |", "| en | 70 |", "seed: 3"):
        assert line in text
    assert "| before training | 0.500 | 0.250 | 0.375 |\n| step 8 | 0.750 | 0.500 | 0.625 |\n" in text
    assert "negative societal biases and stereotypes" in text


def test_the_metadata_of_a_card_read_back_and_written_again_is_the_same(trained: SimpleNamespace) -> None:
    metadata = yaml.safe_load(str(trained.card.data))
    assert ModelCard(str(trained.card)).data.to_dict() == trained.card.data.to_dict()
    assert metadata["model-index"][0]["results"][0]["task"]["type"] == "text-retrieval"


def test_a_folder_is_uploaded_to_the_repository_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = create_autospec(HfApi, instance=True)
    api.create_repo.return_value.repo_id = "someone/hmde"
    monkeypatch.setattr(hub, "HfApi", lambda: api)
    hub.upload_folder(tmp_path, "hmde")
    api.create_repo.assert_called_once_with("hmde", exist_ok=True)
    api.upload_folder.assert_called_once_with(repo_id="someone/hmde", folder_path=tmp_path)
