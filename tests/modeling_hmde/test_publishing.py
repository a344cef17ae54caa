"""Cards, and push_to_hub end to end against a stand-in of the Hub, from a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from huggingface_hub import DatasetCard, ModelCard

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.publishing_hmde import model_card
from tests.hub_stand_in import Hub, metadata_errors, running_hub
from tests.paths import REPOSITORY
from training.loop.loop import Progress
from training.model_card import write_model_card
from training.pretrain_recipe import PretrainRecipe

CODE = {file.name for file in (REPOSITORY / "modeling_hmde").glob("*_hmde.py")}
MODEL_FILES = {"config.json", "model.safetensors", "modules.json", "config_sentence_transformers.json", *CODE}
TOKENIZER_FILES = {"tokenizer.json", "tokenizer_config.json"}

PUSH = """
import sys
import torch
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

model = HMDEForDocumentEmbedding.from_pretrained(sys.argv[1])
if "changed" in sys.argv:
    torch.nn.init.ones_(model.hmde.document_encoder.dbos)
print(model.push_to_hub("someone/hmde").oid)
HMDETokenizer.from_pretrained(sys.argv[1]).push_to_hub("someone/hmde")
"""

PULL = """
import sys
sys.modules["modeling_hmde"] = None  # as if it were not installed
import torch
from transformers import AutoModel, AutoTokenizer

first, text = sys.argv[1:]
def embed(**pins):
    tokenizer = AutoTokenizer.from_pretrained("someone/hmde", trust_remote_code=True, **pins)
    model = AutoModel.from_pretrained("someone/hmde", trust_remote_code=True, **pins)
    return model.encode_documents([text], tokenizer)[0]

def dbos(**pins):
    return AutoModel.from_pretrained("someone/hmde", trust_remote_code=True, **pins).hmde.document_encoder.dbos

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

by_name = mteb.get_model("someone/hmde", trust_remote_code=True)
for model in by_name, SentenceTransformerEncoderWrapper(sys.argv[1], trust_remote_code=True):
    (result,) = mteb.evaluate(model, LocalTask(), cache=ResultCache("mteb"), show_progress_bar=False)
    print(result.scores["test"][0]["ndcg_at_10"])
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as hub:
        yield hub


@pytest.fixture
def folder(
    labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tokenizer: HMDETokenizer, tmp_path: Path
) -> Path:
    make_model(labse).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def run(program: str, hub: Hub, cache: Path, *arguments: str, offline: bool = False) -> str:
    """What the program prints, with the stand-in for its Hub."""
    environment = hub.environment(HF_HUB_OFFLINE=str(int(offline)), HF_HOME=str(cache))
    program = "import torch; torch.set_num_threads(1)\n" + program
    finished = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, cwd=cache, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    return finished.stdout


def test_pushed_twice_and_loaded_at_either_commit_over_a_connection_that_drops(
    hub: Hub, folder: Path, documents: list[str], tmp_path: Path
) -> None:
    hub.drop = ["POST /api/models/someone/hmde/preupload", "PUT /lfs/"]
    first = run(PUSH, hub, tmp_path, str(folder)).strip()
    assert not hub.drop
    files = hub.files("someone/hmde")
    assert set(files) == MODEL_FILES | TOKENIZER_FILES | {"README.md"}
    for name in MODEL_FILES | TOKENIZER_FILES:
        if not name.endswith(".json"):
            assert files[name] == (folder / name).read_bytes(), name

    card = files["README.md"].decode()
    assert 'SentenceTransformer("someone/hmde"' in card
    assert ModelCard(card).data.library_name == "transformers"
    assert card in hub.validated

    files["README.md"] = edited = files["README.md"] + b"Edited on the Hub.\n"
    num_commits = len(hub.commits["someone/hmde"])
    run(PUSH, hub, tmp_path, str(folder), "changed")
    assert len(hub.commits["someone/hmde"]) > num_commits
    assert hub.files("someone/hmde")["model.safetensors"] != files["model.safetensors"]
    assert hub.files("someone/hmde")["README.md"] == edited

    online = run(PULL, hub, tmp_path, first, documents[0])
    num_requests = len(hub.requests)
    assert run(PULL, hub, tmp_path, first, documents[0], offline=True) == online
    assert len(hub.requests) == num_requests


def test_the_card_of_the_folder_goes_with_the_model(hub: Hub, folder: Path, tmp_path: Path) -> None:
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n", encoding="utf-8")
    run(PUSH, hub, tmp_path, str(folder))
    assert hub.files("someone/hmde")["README.md"] == (folder / "README.md").read_bytes()


def test_sentence_transformers_pushes_the_whole_folder(hub: Hub, folder: Path, tmp_path: Path) -> None:
    push = """
import sys
from sentence_transformers import SentenceTransformer
SentenceTransformer(sys.argv[1], trust_remote_code=True).push_to_hub("someone/hmde")
"""
    run(push, hub, tmp_path, str(folder))
    assert set(hub.files("someone/hmde")) >= MODEL_FILES | TOKENIZER_FILES | {"README.md"}


def test_mteb_finds_the_model_by_its_name_and_files_its_results_there(hub: Hub, folder: Path, tmp_path: Path) -> None:
    run(PUSH, hub, tmp_path, str(folder))
    *_, by_name, by_folder = run(MTEB, hub, tmp_path, str(folder)).split()  # before them mteb asks for trust once more
    assert by_name == by_folder
    commit, _ = hub.commits["someone/hmde"][-1]
    assert len([*(tmp_path / "mteb" / "results" / "someone__hmde" / commit).rglob("Local.json")]) == 1


def test_the_sample_is_a_data_set_with_a_card_that_the_hub_accepts(hub: Hub, tmp_path: Path) -> None:
    push = """
import sys
from huggingface_hub import HfApi
HfApi().create_repo("someone/sample", repo_type="dataset")
HfApi().upload_folder(repo_id="someone/sample", folder_path=sys.argv[1], repo_type="dataset")
"""
    run(push, hub, tmp_path, str(REPOSITORY / "sample"))
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


def test_nothing_is_pushed_with_a_card_that_is_not_accepted(hub: Hub, folder: Path, tmp_path: Path) -> None:
    (folder / "README.md").write_text("---\nlicense: apache\n---\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"Invalid metadata in README\.md\.\s+- license must be one of"):
        run(PUSH, hub, tmp_path, str(folder))
    assert not hub.files("someone/hmde")


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
