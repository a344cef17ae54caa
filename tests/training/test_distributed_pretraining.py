"""Several processes compute what one does."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from tests.pretraining import FSDP2, options, two_have_the_gradients_of_one
from training import pretrain

EXACT = {
    "architecture": '{"num_document_attention_heads": 4, "document_dropout": 0.0, "max_sentences": 4}',
    "sentence_dropout": 0.0,  # each process draws its own
    "losses": json.dumps(
        {
            "info_nce": {"hard_negatives": "all", "symmetric": True},
            "queries": {"weight": 0.5, "hard_negatives": "all"},
        }
    ),
    "learning_rate": 1e-4,
}


@pytest.mark.parametrize(
    ("environment", "max_tokens_per_chunk"),
    [
        pytest.param({}, 4096, marks=pytest.mark.slow, id="ddp-whole"),
        pytest.param({}, 100, id="ddp-in-chunks"),
        pytest.param(FSDP2, 100, id="fsdp2-in-chunks"),
    ],
)
def test_two_processes_have_the_gradients_of_one_and_keep_its_model(
    corpus_folder, labse, tmp_path, monkeypatch, environment, max_tokens_per_chunk
):
    """With accumulation, and more chunks on one process than on the other."""
    changes = EXACT | {"max_steps": 3, "eval_steps": 3, "save_steps": 3, "keep": "last"}
    arguments = partial(options, corpus_folder, labse, **changes, max_tokens_per_chunk=max_tokens_per_chunk)
    steps = two_have_the_gradients_of_one(pretrain.main, monkeypatch, arguments, tmp_path, [environment])
    assert len(steps) == 3
    kept, kept_by_two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two-0"))
    assert kept.keys() == kept_by_two.keys()
    for name, weight in kept.items():
        torch.testing.assert_close(kept_by_two[name], weight, rtol=1e-3, atol=1e-4)
