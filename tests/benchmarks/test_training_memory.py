"""The arithmetic of a GPU's memory, against what a whole encoder keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel

from benchmarks.training_memory import kept, kept_by_layer, main, memory
from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding
from training.lora import Lora, add_lora

QWEN3 = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}


@pytest.mark.parametrize("model_type", ["qwen3", "gemma3_text"])
def test_layers_keep_what_a_whole_encoder_keeps(model_type: str) -> None:
    config = AutoConfig.for_model(model_type, **QWEN3, num_hidden_layers=5, vocab_size=60000, pad_token_id=0)
    lora = Lora(rank=4)
    fixed, per_token = kept_by_layer(config, lora)
    found = kept(config, 5, lora, 80) - kept(config, 2, lora, 80)
    assert found == pytest.approx(3 * (fixed + 80 * per_token), rel=0.01)


def test_the_mask_of_local_attention_does_not_count() -> None:
    found = []
    for distance in (1, 3):  # between layers of global attention
        fields = QWEN3 | {"num_hidden_layers": 5, "global_attn_every_n_layers": distance}
        found.append(kept_by_layer(AutoConfig.for_model("modernbert", **fields), Lora(rank=4)))
    assert found[0] == pytest.approx(found[1], rel=0.02)


def test_with_checkpointing_a_layer_keeps_its_input(labse: Path) -> None:
    encoder = AutoModel.from_config(AutoConfig.for_model("qwen3", **QWEN3, num_hidden_layers=6, vocab_size=50))
    add_lora(encoder, Lora(rank=4))
    encoder.gradient_checkpointing_enable()
    own = {weight.untyped_storage().data_ptr() for weight in encoder.parameters()}
    saved = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    states = torch.randn(1, 100, 64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        encoder.train()(inputs_embeds=states)
    inputs = [tensor for place, tensor in saved.items() if place not in own and tensor.shape == states.shape]
    assert sum(tensor.untyped_storage().nbytes() for tensor in inputs) >= 6 * 4 * 64 * 100
    everything = sum(tensor.untyped_storage().nbytes() for place, tensor in saved.items() if place not in own)
    assert everything < 1.5 * 6 * 4 * 64 * 100


def test_it_writes_the_memory_of_each_encoder(labse: Path, tmp_path: Path) -> None:
    fields = QWEN3 | {"model_type": "qwen3", "num_hidden_layers": 2, "vocab_size": 1000}
    encoders = json.dumps({"tiny": fields, "a folder's": {"name_or_path": str(labse)}})
    main([f"--encoders={encoders}", "--tokens=100", "--lora.rank=2", f"--output={tmp_path}"])
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [row["encoder"] for row in rows] == ["tiny", "a folder's"]
    config = HMDEConfig(sentence_config=AutoConfig.for_model(**fields))
    model = HMDEForDocumentEmbedding(config)
    add_lora(model.hmde.sentence_encoder, Lora(rank=2))
    counts = [weight.numel() * (16 if weight.requires_grad else 4) for weight in model.parameters()]
    assert rows[0]["weights and AdamW, GB"] == pytest.approx(sum(counts) / 1e9)
    assert 0 < rows[0]["activations with checkpointing, GB"] < rows[0]["activations, GB"]
    twice = memory(config.sentence_config, 200, Lora(rank=2))
    assert rows[0]["activations, GB"] < twice["activations, GB"] < 2 * rows[0]["activations, GB"]
