"""A saved folder by itself: in a fresh process, where this package cannot be imported, offline, with empty caches."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDEForSequenceClassification, HMDETokenizer

EXTRA_TEXTS = ["", "<s>[CLS]＜s＞ the cat", "The cat sat. " * 50]
SHIPPED_CODE = {
    "abbreviations_hmde.py",
    "attention_hmde.py",
    "attribution_hmde.py",
    "configuration_hmde.py",
    "document_encoder_hmde.py",
    "encoders_hmde.py",
    "inference_hmde.py",
    "loading_hmde.py",
    "marks_hmde.py",
    "modeling_hmde.py",
    "outputs_hmde.py",
    "packing_hmde.py",
    "pipeline_hmde.py",
    "pooling_hmde.py",
    "refusals_hmde.py",
    "rows_hmde.py",
    "segmentation_hmde.py",
    "sentence_modules_hmde.py",
    "sentence_reading_hmde.py",
    "sentence_transformers_hmde.py",
    "tokenization_hmde.py",
    "wrapping_hmde.py",
}

FRESH_PROCESS = """
import os, socket, sys
from pathlib import Path

sys.modules["modeling_hmde"] = None  # as if it were not installed
try:
    import modeling_hmde
except ImportError:
    pass
else:
    raise AssertionError("the package can be imported")

def refuse(*_):
    raise AssertionError("a network connection")

socket.socket.connect = refuse

import dill
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline

work = Path(sys.argv[1])
texts = torch.load(work / "texts.pt")
remote = {"trust_remote_code": True}
seen = {}
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)  # fills new memory with NaN
assert torch.empty(3).isnan().all()
garbage = [torch.full((size,), float("nan")) for size in range(1, 4096, 7)]
del garbage

@torch.no_grad()
def embed(folder):
    tokenizer, model = AutoTokenizer.from_pretrained(folder, **remote), AutoModel.from_pretrained(folder, **remote)
    return model(**tokenizer(texts, padding=True, return_tensors="pt")).pooler_output

embedding, classification = work / "embedding", work / "classification"
try:
    AutoModel.from_pretrained(embedding, trust_remote_code=False)
except ValueError as error:
    seen["without trust"] = str(error)
config = AutoConfig.from_pretrained(embedding, **remote)
tokenizer = AutoTokenizer.from_pretrained(embedding, **remote)
model = AutoModel.from_pretrained(embedding, **remote)
seen["classes"] = [f"{type(each).__module__}.{type(each).__name__}" for each in (config, tokenizer, model)]
seen["options"] = config.to_dict()
seen["dill copies a class"] = [len(dill.dumps(type(each))) > 1000 for each in (config, tokenizer, model)]
seen["rows"] = tokenizer(texts)["input_ids"]
seen["tokenizer options"] = (tokenizer.max_sentences, tokenizer.sentence_prompt, tokenizer.query_prompt)
seen["weights"] = model.state_dict()
seen["embeddings"] = embed(embedding)
seen["encode_documents"] = model.encode_documents(texts, tokenizer, normalize=False)
seen["encode_queries"] = model.encode_queries(texts, tokenizer, normalize=False)

classifier = AutoModelForSequenceClassification.from_pretrained(classification, **remote)
with torch.no_grad():
    inputs = AutoTokenizer.from_pretrained(classification, **remote)(texts, padding=True, return_tensors="pt")
    seen["logits"] = classifier(**inputs).logits
classify = pipeline("text-classification", model=str(classification), top_k=None, **remote)
seen["classified singly"] = [classify(text)[0] for text in texts]
seen["classified in batches"] = classify(texts, batch_size=3)
extract = pipeline("feature-extraction", model=str(embedding), **remote)
seen["extracted singly"] = [extract(text) for text in texts]
seen["extracted in batches"] = extract(texts, batch_size=3)

model.save_pretrained(work / "again")
tokenizer.save_pretrained(work / "again")
seen["embeddings saved again"] = embed(work / "again")
os.chdir(embedding)
seen["embeddings from inside the folder"] = embed(".")

as_module = SentenceTransformer(str(embedding), trust_remote_code=True)
seen["embeddings by sentence-transformers"] = as_module.encode_document(texts)
seen["queries by sentence-transformers"] = as_module.encode_query(texts)
torch.save(seen, work / "seen.pt")
"""


@pytest.fixture(scope="module")
def hub(
    labse: Path,
    xlmr: Path,
    make_model: Callable[..., HMDEForDocumentEmbedding],
    documents: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> SimpleNamespace:
    """The folders `embedding` and `classification`, and what the models saved there compute."""
    work = tmp_path_factory.mktemp("hub")
    texts = documents + EXTRA_TEXTS
    model = make_model(labse, document_positions=True)
    tokenizer = HMDETokenizer.from_sentence_encoder(str(labse), sentence_prompt="der: ", query_prompt="die: ")
    model.save_pretrained(work / "embedding")
    tokenizer.save_pretrained(work / "embedding")
    make_model(xlmr).save_pretrained(work / "start")
    labels = {"id2label": {0: "cats", 1: "dogs", 2: "mats"}, "label2id": {"cats": 0, "dogs": 1, "mats": 2}}
    torch.manual_seed(0)
    classifier = HMDEForSequenceClassification.from_pretrained(work / "start", initializer_range=0.5, **labels)
    classifier.save_pretrained(work / "classification")
    classifier_tokenizer = HMDETokenizer.from_sentence_encoder(str(xlmr))
    classifier_tokenizer.save_pretrained(work / "classification")
    with torch.no_grad():
        output = model(**tokenizer(texts, padding=True, return_tensors="pt"))
        logits = classifier(**classifier_tokenizer(texts, padding=True, return_tensors="pt")).logits
    return SimpleNamespace(
        work=work,
        texts=texts,
        model=model,
        tokenizer=tokenizer,
        output=output,
        embeddings=output.pooler_output,
        logits=logits,
    )


@pytest.fixture(scope="module")
def seen(hub: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a fresh process computes from the folders."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    torch.save(hub.texts, hub.work / "texts.pt")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON"))}
    subprocess.run(
        [sys.executable, "-I", "-c", FRESH_PROCESS, str(hub.work)],
        cwd=elsewhere,
        env=environment | {"HF_HOME": str(elsewhere / "cache"), "HF_HUB_OFFLINE": "1"},
        check=True,
    )
    return torch.load(hub.work / "seen.pt", weights_only=False)


def assert_close(actual: Any, expected: Any) -> None:
    """To 1e-5 of the largest value: the weights here are large, and so are the sums whose order may differ."""
    actual, expected = torch.as_tensor(actual), torch.as_tensor(expected)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * max(1.0, float(expected.abs().max())))


# --- in a fresh process ----------------------------------------------------------------------------------------------


def test_the_auto_classes_find_the_code_in_the_folder(seen: dict[str, Any], hub: SimpleNamespace) -> None:
    modules, names = zip(*(name.rsplit(".", 1) for name in seen["classes"]), strict=True)
    assert names == ("HMDEConfig", "HMDETokenizer", "HMDEForDocumentEmbedding")
    assert all(module.startswith("transformers_modules.") for module in modules)
    assert {path.name for path in (hub.work / "embedding").glob("*.py")} == SHIPPED_CODE


def test_datasets_can_tell_functions_that_use_a_model_apart(seen: dict[str, Any]) -> None:
    """`map` takes a fingerprint of them by dill, which copies the code of classes that it does not find."""
    assert seen["dill copies a class"] == [False, False, False]


def test_the_code_in_the_folder_runs_where_it_is_trusted_only(seen: dict[str, Any]) -> None:
    assert "trust_remote_code=True" in seen["without trust"]


def test_config_and_tokenizer_are_those_saved(seen: dict[str, Any], hub: SimpleNamespace) -> None:
    ignored = {"_name_or_path", "dtype", "architectures"}
    saved = {key: value for key, value in hub.model.config.to_dict().items() if key not in ignored}
    assert {key: seen["options"][key] for key in saved} == saved
    assert seen["rows"] == hub.tokenizer(hub.texts)["input_ids"]
    assert seen["tokenizer options"] == (32, "der: ", "die: ")


def test_no_garbage_of_new_memory_is_in_the_weights_or_the_embeddings(
    seen: dict[str, Any], hub: SimpleNamespace
) -> None:
    saved = load_file(hub.work / "embedding" / "model.safetensors")
    assert seen["weights"].keys() == saved.keys()
    assert all(torch.equal(seen["weights"][name], weight) for name, weight in saved.items())
    assert torch.equal(seen["embeddings"], hub.embeddings)


@pytest.mark.parametrize("way", ["saved again", "from inside the folder", "by sentence-transformers"])
def test_embeddings_are_the_same_every_way(seen: dict[str, Any], hub: SimpleNamespace, way: str) -> None:
    assert_close(seen[f"embeddings {way}"], hub.embeddings)


def test_lists_of_texts_are_encoded_the_same(seen: dict[str, Any], hub: SimpleNamespace) -> None:
    assert_close(seen["encode_documents"], hub.embeddings)
    queries = hub.model.encode_queries(hub.texts, hub.tokenizer, normalize=False)
    assert_close(seen["encode_queries"], queries)
    assert_close(seen["queries by sentence-transformers"], queries)


def test_a_folder_saved_again_holds_the_code_again(seen: dict[str, Any], hub: SimpleNamespace) -> None:
    for file in SHIPPED_CODE:
        assert (hub.work / "again" / file).read_text() == (hub.work / "embedding" / file).read_text()


def test_logits_are_the_same(seen: dict[str, Any], hub: SimpleNamespace) -> None:
    assert_close(seen["logits"], hub.logits)


@pytest.mark.parametrize("way", ["singly", "in batches"])
def test_the_text_classification_pipeline_gives_the_probabilities_of_the_labels(
    seen: dict[str, Any], hub: SimpleNamespace, way: str
) -> None:
    for scores, logits in zip(seen[f"classified {way}"], hub.logits, strict=True):
        by_label = {score["label"]: score["score"] for score in scores}
        assert_close([by_label[label] for label in ("cats", "dogs", "mats")], logits.softmax(dim=0))


@pytest.mark.parametrize("way", ["singly", "in batches"])
def test_the_feature_extraction_pipeline_gives_the_contextualised_sentences(
    seen: dict[str, Any], hub: SimpleNamespace, way: str
) -> None:
    states = zip(hub.output.last_hidden_state, hub.output.sentence_lengths > 0, strict=True)
    for features, (expected, mask) in zip(seen[f"extracted {way}"], states, strict=True):
        assert_close(torch.tensor(features)[0][: mask.sum()], expected[mask])


# --- where the package is installed ----------------------------------------------------------------------------------


def test_an_installed_package_needs_no_trust(hub: SimpleNamespace) -> None:
    folder = hub.work / "embedding"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    assert type(AutoConfig.from_pretrained(folder)) is HMDEConfig
    assert type(tokenizer) is HMDETokenizer
    assert type(model) is HMDEForDocumentEmbedding
    with torch.no_grad():
        assert_close(model(**tokenizer(hub.texts, padding=True, return_tensors="pt")).pooler_output, hub.embeddings)
    classifier = AutoModelForSequenceClassification.from_pretrained(hub.work / "classification")
    assert type(classifier) is HMDEForSequenceClassification
    best = [score["label"] for score in pipeline("text-classification", str(hub.work / "classification"))(hub.texts)]
    assert best == [classifier.config.id2label[int(label)] for label in hub.logits.argmax(dim=1)]
