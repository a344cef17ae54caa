"""Cards, and what goes to the Hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import call, create_autospec

import pytest
import yaml
from huggingface_hub import DatasetCard, HfApi, ModelCard

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer, publishing_hmde
from modeling_hmde.publishing_hmde import model_card, upload_folder
from tests.paths import REPOSITORY
from training.loop.loop import Progress
from training.model_card import write_model_card
from training.pretrain_recipe import PretrainRecipe


@pytest.fixture
def folder(
    labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tokenizer: HMDETokenizer, tmp_path: Path
) -> Path:
    make_model(labse).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("has_card", [False, True])
def test_a_model_and_its_tokenizer_go_to_the_hub_with_their_code_and_one_card(
    folder: Path, has_card: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded: dict[str, bytes] = {}

    def note(folder: str, repo: str, **options: object) -> None:
        assert (repo, options["keep_card"], options["private"]) == ("someone/hmde", True, True)
        uploaded.update({path.name: path.read_bytes() for path in Path(folder).iterdir()})

    monkeypatch.setattr(publishing_hmde, "upload_folder", note)
    mine = "---\nlicense: mit\n---\n# Mine\n"
    if has_card:
        (folder / "README.md").write_text(mine, encoding="utf-8")
    HMDEForDocumentEmbedding.from_pretrained(folder).push_to_hub("someone/hmde", private=True)
    HMDETokenizer.from_pretrained(folder).push_to_hub("someone/hmde", private=True)
    card = uploaded.pop("README.md").decode()
    assert uploaded.keys() == {path.name for path in folder.iterdir()} - {"README.md"}
    assert uploaded["model.safetensors"] == (folder / "model.safetensors").read_bytes()
    assert card == mine if has_card else 'SentenceTransformer("someone/hmde"' in card


@pytest.mark.parametrize(
    ("revision", "branch_is_made"), [(None, False), ("refs/pr/3", False), ("v2", True)], ids=["none", "pr", "branch"]
)
def test_a_folder_is_uploaded_in_one_commit_to_the_repository_and_branch_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revision: str | None, branch_is_made: bool
) -> None:
    api = create_autospec(HfApi, instance=True)
    api.create_repo.return_value.repo_id = "someone/texts"
    opened = create_autospec(HfApi, return_value=api)
    monkeypatch.setattr(publishing_hmde, "HfApi", opened)
    options = {"private": True, "token": "secret", "revision": revision, "commit_message": "Texts"}
    assert upload_folder(tmp_path, "texts", "dataset", **options) is api.upload_folder.return_value
    opened.assert_called_once_with(token="secret")
    api.create_repo.assert_called_once_with("texts", repo_type="dataset", private=True, exist_ok=True)
    branches = [call("someone/texts", repo_type="dataset", branch="v2", exist_ok=True)] if branch_is_made else []
    assert api.create_branch.mock_calls == branches
    api.file_exists.assert_not_called()
    api.upload_folder.assert_called_once_with(
        repo_id="someone/texts",
        repo_type="dataset",
        folder_path=tmp_path,
        revision=revision,
        ignore_patterns=None,
        create_pr=None,
        commit_message="Texts",
        commit_description=None,
    )


def test_an_unknown_option_is_refused_before_there_is_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing_hmde, "HfApi", opened := create_autospec(HfApi))
    with pytest.raises(TypeError, match="comit_message"):
        upload_folder(tmp_path, "texts", comit_message="Texts")  # type: ignore[call-arg]
    opened.assert_not_called()


@pytest.mark.parametrize("has_card", [True, False])
def test_a_card_is_kept_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_card: bool) -> None:
    api = create_autospec(HfApi, instance=True)
    api.create_repo.return_value.repo_id = "someone/hmde"
    api.file_exists.return_value = has_card
    monkeypatch.setattr(publishing_hmde, "HfApi", lambda token: api)
    upload_folder(tmp_path, "hmde", keep_card=True)
    assert api.upload_folder.call_args.kwargs["ignore_patterns"] == (["README.md"] if has_card else None)
    assert api.file_exists.call_args == call("someone/hmde", "README.md", repo_type="model", revision=None)


# --- cards -----------------------------------------------------------------------------------------------------------


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


def test_a_card_without_a_training_run_claims_none(model: HMDEForDocumentEmbedding) -> None:
    card = model_card("someone/hmde", model.config)
    assert card.data.eval_results is None
    assert card.data.license is None
    assert "| sentence encoder | bert |" in card.text
    assert "trained on the corpus" not in card.text.lower()
    assert "## Results" not in card.text


def test_the_samples_card_names_its_files_as_huggingface_datasets_reads_them() -> None:
    from datasets import load_dataset_builder

    card = DatasetCard.load(REPOSITORY / "sample" / "README.md")
    assert card.data.license == "cc-by-4.0"
    for config in card.data.configs:
        for file in config["data_files"]:
            assert list((REPOSITORY / "sample").glob(file["path"])), file
    builder = load_dataset_builder(str(REPOSITORY / "sample"), "docs")
    assert builder.config.name == "docs"
