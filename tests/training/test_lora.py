"""LoRA: an adapter is trained in place of the sentence encoder, resumed, and merged into the model that users open."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.pretraining import FSDP2, goes_on_bit_for_bit, options, two_have_the_gradients_of_one
from tests.training.test_checkpoints import CHANGES
from tests.training.test_distributed_pretraining import EXACT
from training import pretrain
from training.data.kinds import DOCUMENTS
from training.encoder import TwoPathEncoder
from training.lora import Lora, merged_weights
from training.models import build
from training.pretrain_recipe import PretrainRecipe

ARCHITECTURE = {"num_document_attention_heads": 4, "document_intermediate_size": 32, "max_sentences": 4}
LORA = {"lora.rank": 3, "lora.alpha": 6, "lora.dropout": 0.1}


def adapted(encoder: Path, **changes: object) -> tuple[HMDEForDocumentEmbedding, HMDETokenizer]:
    """An HMDE with an adapter that is not 0."""
    changes = {"architecture": ARCHITECTURE, "lora": Lora(rank=3)} | changes
    torch.manual_seed(0)
    model, tokenizer = build(PretrainRecipe(corpus="", output="", sentence_encoder=str(encoder), **changes))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.normal_(std=0.2)
    return model, tokenizer


def test_a_merged_model_is_the_model_with_its_adapter(encoder_folder, documents, tmp_path, encoded_elsewhere):
    model, tokenizer = adapted(encoder_folder)
    model.eval()
    documents_before = model.encode_documents(documents, tokenizer)
    queries_before = model.encode_queries(documents, tokenizer)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    model.save_pretrained(tmp_path / "model", state_dict=merged_weights(model))
    tokenizer.save_pretrained(tmp_path / "model")
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    found = encoded_elsewhere(tmp_path / "model", documents)
    np.testing.assert_allclose(found["documents"], documents_before, atol=1e-5)
    np.testing.assert_allclose(found["queries"], queries_before, atol=1e-5)
    start = HMDEForDocumentEmbedding.from_sentence_encoder(encoder_folder, **ARCHITECTURE)
    assert np.abs(start.encode_queries(documents, tokenizer) - queries_before).max() > 1e-2


def test_an_adapter_starts_as_nothing_and_is_all_that_is_trained_of_the_sentence_encoder(encoder_folder):
    recipe = PretrainRecipe(corpus="", output="", sentence_encoder=str(encoder_folder), architecture=ARCHITECTURE)
    plain, _ = build(recipe)
    recipe.lora = Lora(rank=3)
    model, _ = build(recipe)
    merged = merged_weights(model)
    assert merged.keys() == plain.state_dict().keys()
    assert merged_weights(plain).keys() == merged.keys()
    lower = {name: weight for name, weight in plain.state_dict().items() if "sentence_encoder" in name}
    assert all(torch.equal(merged[name], weight) for name, weight in lower.items())
    trained = {name for name, weight in model.hmde.sentence_encoder.named_parameters() if weight.requires_grad}
    linear = [name for name, part in plain.hmde.sentence_encoder.named_modules() if isinstance(part, torch.nn.Linear)]
    assert trained == {f"{name}.lora_{side}.default.weight" for name in linear for side in "AB"}
    assert all(weight.requires_grad for weight in model.hmde.document_encoder.parameters())


def test_gradients_of_an_adapter_are_those_of_its_matrices_also_with_checkpointing(encoder_folder, documents):
    """Against the gradient of the merged matrix W: that of A is scale * B^T dW, that of B is scale * dW A^T."""

    def gradients_of(model: HMDEForDocumentEmbedding) -> dict[str, torch.Tensor]:
        model.train()
        rows = dict(tokenizer(documents, padding=True, return_tensors="pt"))
        vectors = TwoPathEncoder(model)({DOCUMENTS: rows})[DOCUMENTS]
        (vectors * torch.linspace(-1, 1, vectors.numel()).view_as(vectors)).sum().backward()
        return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}

    still = {"architecture": ARCHITECTURE | {"document_dropout": 0.0}, "sentence_dropout": 0.0}
    model, tokenizer = adapted(encoder_folder, **still)
    merged, _ = adapted(encoder_folder, **still, lora=None)
    merged.load_state_dict(merged_weights(model))
    found, expected = gradients_of(model), gradients_of(merged)
    scale = 32 / 3
    matrices = [name.removesuffix(".lora_A.default.weight") for name in found if ".lora_A." in name]
    assert len(matrices) > 4
    for name in matrices:
        a, b = (model.get_parameter(f"{name}.lora_{side}.default.weight") for side in "AB")
        whole = expected[f"{name}.weight"]
        for side, gradient in (("A", scale * b.T @ whole), ("B", scale * whole @ a.T)):
            error = {"rtol": 1e-3, "atol": 1e-3 * float(gradient.abs().max())}
            torch.testing.assert_close(found[f"{name}.lora_{side}.default.weight"], gradient, **error)
    checkpointed, _ = adapted(encoder_folder, **still, gradient_checkpointing=True)
    checkpointed.load_state_dict(model.state_dict())
    again = gradients_of(checkpointed)
    assert again.keys() == found.keys()
    assert all(torch.allclose(again[name], gradient, atol=1e-6) for name, gradient in found.items())


@pytest.mark.parametrize("changes", [{}, {"gradient_checkpointing": "true", "mixed_precision": "bf16"}])
def test_a_run_leaves_the_start_plus_a_product_of_narrow_matrices(
    corpus_folder, labse, tmp_path, documents, encoded_elsewhere, changes
):
    changes = LORA | {"max_steps": 4, "keep": "last"} | changes
    pretrain.main(options(corpus_folder, labse, tmp_path / "model", **changes))
    merged = load_file(tmp_path / "model" / "model.safetensors")
    start = HMDEForDocumentEmbedding.from_sentence_encoder(labse, **ARCHITECTURE).state_dict()
    assert merged.keys() == start.keys()
    moved = {name: weight - start[name] for name, weight in merged.items() if "sentence_encoder" in name}
    changed = {name: change for name, change in moved.items() if change.any()}
    assert len(changed) == 2 * 6  # of each of two layers: query, key, value, output, and two of the feed-forward part
    for name, change in changed.items():
        singular = torch.linalg.svdvals(change)
        assert singular[3] < 1e-3 * singular[0], name
    vectors = encoded_elsewhere(tmp_path / "model", documents)["documents"]
    model = HMDEForDocumentEmbedding.from_pretrained(tmp_path / "model")
    expected = model.encode_documents(documents, HMDETokenizer.from_pretrained(tmp_path / "model"))
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert "rank: 3" in (tmp_path / "model" / "README.md").read_text()
    saved = load_file(tmp_path / "model-training" / "checkpoints" / "step-00000004" / "model.safetensors")
    assert all("lora_" in name or "document_encoder" in name for name in saved)  # what is frozen is in no checkpoint
    assert sum("lora_" in name for name in saved) == 2 * 12


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{}, FSDP2], ids=["one-process", "fsdp2"])
def test_a_killed_run_goes_on_bit_for_bit(corpus_folder, labse, tmp_path, environment):
    """With dropout in the adapter and drawn queries."""
    processes = 2 if environment else 1
    changes = CHANGES | LORA | {"max_steps": 4, "batch_size": 4 // processes}
    arguments = options(corpus_folder, labse, tmp_path / "model", **changes)
    goes_on_bit_for_bit(pretrain.main, arguments, tmp_path, processes=processes, **environment)


@pytest.mark.slow
def test_a_run_is_not_resumed_on_another_encoder_of_the_same_name(corpus_folder, labse, tmp_path):
    encoder = tmp_path / "encoder"
    shutil.copytree(labse, encoder)
    arguments = options(corpus_folder, encoder, tmp_path / "model", **LORA, max_steps=1)
    pretrain.main(arguments)
    model = AutoModel.from_pretrained(encoder)
    with torch.no_grad():
        model.get_input_embeddings().weight[7] += 1
    model.save_pretrained(encoder)
    with pytest.raises(ValueError, match=r"frozen weights was '[0-9a-f]+' and is '[0-9a-f]+'"):
        pretrain.main([*arguments, "--resume", "true"])


@pytest.mark.slow
def test_two_processes_have_the_gradients_of_one(corpus_folder, labse, tmp_path, monkeypatch):
    changes = EXACT | {"max_steps": 2, "max_tokens_per_chunk": 100, "lora.rank": 3}
    arguments = partial(options, corpus_folder, labse, **changes)
    steps = two_have_the_gradients_of_one(pretrain.main, monkeypatch, arguments, tmp_path, [{}, FSDP2])
    assert [any("lora_B" in name for name in step) for step in steps] == [True, True]
