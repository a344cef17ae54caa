"""Cards, and push_to_hub end to end against a stand-in of the Hub, from a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import call, create_autospec

import pytest
import yaml
from huggingface_hub import DatasetCard, HfApi, ModelCard

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer, publishing_hmde
from modeling_hmde.publishing_hmde import model_card, upload_folder
from tests.hub_stand_in import Hub, metadata_errors
from tests.paths import REPOSITORY
from training.loop.loop import Progress
from training.model_card import write_model_card
from training.pretrain_recipe import PretrainRecipe

CODE = {file.name for file in (REPOSITORY / "modeling_hmde").glob("*_hmde.py")}
MODEL_FILES = {"config.json", "model.safetensors", "modules.json", "config_sentence_transformers.json", *CODE}
TOKENIZER_FILES = {"tokenizer.json", "tokenizer_config.json"}

PUSH = """
import sys, time
import torch
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

time.sleep = lambda seconds: None  # huggingface_hub waits before it asks again
folder, repo, *how = sys.argv[1:]
model = HMDEForDocumentEmbedding.from_pretrained(folder)
if "changed" in how:
    torch.nn.init.ones_(model.hmde.document_encoder.dbos)
print(model.push_to_hub(repo).oid)
HMDETokenizer.from_pretrained(folder).push_to_hub(repo)
"""

PULL = """
import sys
sys.modules["modeling_hmde"] = None  # as if it were not installed
import torch
from transformers import AutoModel, AutoTokenizer

repo, first, text = sys.argv[1:]
def embed(**pins):
    tokenizer = AutoTokenizer.from_pretrained(repo, trust_remote_code=True, **pins)
    model = AutoModel.from_pretrained(repo, trust_remote_code=True, **pins)
    return model.encode_documents([text], tokenizer)[0]

def dbos(**pins):
    return AutoModel.from_pretrained(repo, trust_remote_code=True, **pins).hmde.document_encoder.dbos

assert (dbos() == 1).all()
assert (dbos(code_revision=first) == 1).all()
assert not (dbos(revision=first) == 1).any()
print(embed().tolist())
"""

MTEB = """
import sys
import mteb
from mteb.cache import ResultCache
from mteb.models import SentenceTransformerEncoderWrapper
from tests.local_mteb_task import LocalTask

folder, repo = sys.argv[1:]
by_name = mteb.get_model(repo, trust_remote_code=True)
for model in by_name, SentenceTransformerEncoderWrapper(folder, trust_remote_code=True):
    (result,) = mteb.evaluate(model, LocalTask(), cache=ResultCache("mteb"), show_progress_bar=False)
    print(result.scores["test"][0]["ndcg_at_10"])
"""


@pytest.fixture
def online(run_in_a_fresh_process: Callable[..., str], tmp_path: Path) -> Callable[..., str]:
    """Runs a program that reaches the stand-in of the Hub."""
    return partial(run_in_a_fresh_process, folder=tmp_path, path=[str(REPOSITORY)], offline=False)


@pytest.fixture
def repo(request: pytest.FixtureRequest) -> str:
    """The name of a repository of the test's own."""
    return f"someone/{request.node.name[len('test_') :][:40].strip('_')}"


@pytest.fixture
def folder(
    labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tokenizer: HMDETokenizer, tmp_path: Path
) -> Path:
    make_model(labse).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.slow
def test_pushed_twice_and_loaded_at_either_commit_over_a_connection_that_drops(
    online: Callable[..., str], hub: Hub, repo: str, folder: Path, documents: list[str], tmp_path: Path
) -> None:
    hub.drop = [f"POST /api/models/{repo}/preupload", "PUT /lfs/"]
    first = online(PUSH, str(folder), repo).strip()
    assert not hub.drop
    files = hub.files(repo)
    assert set(files) == MODEL_FILES | TOKENIZER_FILES | {"README.md"}
    for name in MODEL_FILES | TOKENIZER_FILES:
        if not name.endswith(".json"):
            assert files[name] == (folder / name).read_bytes(), name

    card = files["README.md"].decode()
    assert f'SentenceTransformer("{repo}"' in card
    assert ModelCard(card).data.library_name == "transformers"
    assert card in hub.validated

    files["README.md"] = edited = files["README.md"] + b"Edited on the Hub.\n"
    num_commits = len(hub.commits[repo])
    online(PUSH, str(folder), repo, "changed")
    assert len(hub.commits[repo]) > num_commits
    assert hub.files(repo)["model.safetensors"] != files["model.safetensors"]
    assert hub.files(repo)["README.md"] == edited

    found = online(PULL, repo, first, documents[0])
    num_requests = len(hub.requests)
    assert online(PULL, repo, first, documents[0], offline=True) == found
    assert len(hub.requests) == num_requests


def test_the_card_of_the_folder_goes_with_the_model(
    online: Callable[..., str], hub: Hub, repo: str, folder: Path
) -> None:
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n", encoding="utf-8")
    online(PUSH, str(folder), repo)
    assert hub.files(repo)["README.md"] == (folder / "README.md").read_bytes()


@pytest.mark.slow
def test_sentence_transformers_pushes_the_whole_folder(
    online: Callable[..., str], hub: Hub, repo: str, folder: Path
) -> None:
    push = """
import sys
from sentence_transformers import SentenceTransformer
SentenceTransformer(sys.argv[1], trust_remote_code=True).push_to_hub(sys.argv[2])
"""
    online(push, str(folder), repo)
    assert set(hub.files(repo)) >= MODEL_FILES | TOKENIZER_FILES | {"README.md"}


@pytest.mark.slow
def test_mteb_finds_the_model_by_its_name_and_files_its_results_there(
    online: Callable[..., str], hub: Hub, repo: str, folder: Path, tmp_path: Path
) -> None:
    online(PUSH, str(folder), repo)
    *_, by_name, by_folder = online(MTEB, str(folder), repo).split()  # before: mteb asks for trust
    assert by_name == by_folder
    commit, _ = hub.commits[repo][-1]
    results = tmp_path / "mteb" / "results" / repo.replace("/", "__") / commit
    assert len([*results.rglob("Local.json")]) == 1


def test_the_sample_is_a_data_set_with_a_card_that_the_hub_accepts(
    online: Callable[..., str], hub: Hub, tmp_path: Path
) -> None:
    push = """
import sys
from huggingface_hub import HfApi
HfApi().create_repo("someone/sample", repo_type="dataset")
HfApi().upload_folder(repo_id="someone/sample", folder_path=sys.argv[1], repo_type="dataset")
"""
    online(push, str(REPOSITORY / "sample"))
    files = hub.files("datasets/someone/sample")
    assert {"README.md", "docs/de.jsonl", "qrels.test.tsv"} <= set(files)
    assert files["README.md"].decode() in hub.validated


@pytest.mark.parametrize(
    ("card", "error"),
    [
        ("# No metadata\n", "no metadata"),
        ("---\nlicense: [\n---\n", "no YAML"),
        ("---\nlicense: apache\n---\n", "license must be one of"),
        ("---\nlanguage: [german]\n---\n", "language 'german' must be a code"),
        ("---\npipeline_tag: embedding\n---\n", "pipeline_tag 'embedding' must be one of"),
        ("---\nmodel-index: [{results: [{task: {}, dataset: {}, metrics: [{}]}]}]\n---\n", "dataset.name is required"),
    ],
)
def test_a_card_that_the_hub_would_not_accept_is_not_accepted_here(card: str, error: str) -> None:
    assert error in "; ".join(metadata_errors(card, "model"))


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


def test_nothing_is_pushed_with_a_card_that_is_not_accepted(
    online: Callable[..., str], hub: Hub, repo: str, folder: Path
) -> None:
    (folder / "README.md").write_text("---\nlicense: apache\n---\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"Invalid metadata in README\.md\.\s+- license must be one of"):
        online(PUSH, str(folder), repo)
    assert not hub.files(repo)


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
