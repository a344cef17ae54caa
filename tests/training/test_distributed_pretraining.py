"""Several processes compute what one does."""

from __future__ import annotations

import json

import pytest
import torch
from accelerate import DistributedType, PartialState
from safetensors.torch import load_file

from modeling_hmde import HMDEForDocumentEmbedding
from tests.pretraining import FSDP2, gradients, in_processes, options
from training import pretrain

DEEPSPEED = {
    "DS_ACCELERATOR": "cpu",
    "ACCELERATE_USE_CPU": "false",
    "ACCELERATE_USE_DEEPSPEED": "true",
    "ACCELERATE_DEEPSPEED_ZERO_STAGE": "1",
}
EXACT = {
    "architecture": '{"num_document_attention_heads": 4, "document_dropout": 0.0, "max_sentences": 4}',
    "sentence_dropout": 0.0,  # each process draws its own
    "losses": '{"info_nce": {"hard_negatives": "all", "symmetric": true}, "queries": {"weight": 0.5}}',
    "learning_rate": 1e-4,
}


@pytest.mark.parametrize(
    ("environment", "max_tokens_per_chunk", "loss"),
    [
        pytest.param({}, 4096, "info_nce", id="ddp-whole"),
        pytest.param({}, 100, "distance_constraint", id="ddp-in-chunks"),
        pytest.param(FSDP2, 100, "info_nce", id="fsdp2-in-chunks"),
    ],
)
def test_two_processes_have_the_gradients_of_one_and_keep_its_model(
    corpus_folder, labse, tmp_path, monkeypatch, environment, max_tokens_per_chunk, loss
):
    """With accumulation, a queue, and more chunks on one process than on the other."""
    contrast = {"hard_negatives": "all", "symmetric": True}
    losses = {
        "info_nce": None,
        loss: contrast,
        "queries": {"weight": 0.5, "hard_negatives": "all"},
        "queue": {"size": 8, "momentum": 0.9, "hard_negatives": "all"},
    }
    changes = EXACT | {"losses": json.dumps(losses), "max_steps": 3, "eval_steps": 3, "save_steps": 3}
    changes |= {"max_tokens_per_chunk": max_tokens_per_chunk, "keep": "last"}
    one = options(corpus_folder, labse, tmp_path / "one", **changes, batch_size=4)
    two = options(corpus_folder, labse, tmp_path / "two", **changes, batch_size=2)
    expected = gradients(pretrain.main, monkeypatch, 1, one, tmp_path / "of-one")
    found = gradients(pretrain.main, monkeypatch, 2, two, tmp_path / "of-two", **environment)
    assert len(expected) == 3
    for before, after in zip(expected, found):
        assert before.keys() == after.keys()
        for name, gradient in before.items():
            torch.testing.assert_close(after[name], gradient, rtol=1e-3, atol=1e-5)
    kept, kept_by_two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert kept.keys() == kept_by_two.keys()
    for name, weight in kept.items():
        torch.testing.assert_close(kept_by_two[name], weight, rtol=1e-3, atol=1e-4)


def test_deepspeed_trains_as_ddp(corpus_folder, labse, tmp_path, monkeypatch):
    """Optimizer states shared out over two processes, with accumulation and chunks."""
    pytest.importorskip("deepspeed", reason="pip install deepspeed")
    changes = EXACT | {"max_steps": 3, "save_steps": 3, "max_tokens_per_chunk": 100, "batch_size": 2}

    def weights(name: str, **environment: str) -> dict[str, torch.Tensor]:
        arguments = options(corpus_folder, labse, tmp_path / name, **changes)
        assert in_processes(2, lambda _: pretrain.main(arguments), **environment) == [0, 0]
        return load_file(tmp_path / name / "model.safetensors")

    start = HMDEForDocumentEmbedding.from_sentence_encoder(labse, num_document_attention_heads=4).state_dict()
    expected = weights("ddp")
    # Accelerate knows it on GPUs only.
    monkeypatch.setattr(PartialState, "_prepare_backend", lambda *_: ("gloo", DistributedType.NO))
    found = weights("deepspeed", **DEEPSPEED)
    assert (tmp_path / "deepspeed-training" / "checkpoints" / "step-00000003" / "latest").exists()  # a file of its own
    moved = sum(((weight - start[name]) ** 2).sum() for name, weight in expected.items())
    apart = sum(((weight - expected[name]) ** 2).sum() for name, weight in found.items())
    assert apart < 1e-6 * moved
