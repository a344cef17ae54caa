"""An encoder that keeps some of its layers is described by its configuration, and opens again as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, ModernBertConfig, ModernBertModel, T5Config, T5EncoderModel

from replications.sentences.encoder import take_layers

pytestmark = pytest.mark.slow


def modernbert() -> ModernBertModel:
    sizes: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 4}
    tokens: dict[str, Any] = {f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "cls", "sep")}
    return ModernBertModel(ModernBertConfig(vocab_size=16, **sizes, **tokens)).eval()


def test_kinds_of_layers_go_with_them(tmp_path: Path) -> None:
    model = modernbert()
    kinds = model.config.layer_types
    assert kinds == ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    take_layers(model, [0, 1, 3])
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path).eval()
    assert again.config.layer_types == [kinds[0], kinds[1], kinds[3]]
    ids = torch.arange(1, 9).unsqueeze(0)
    torch.testing.assert_close(again(ids).last_hidden_state, model(ids).last_hidden_state)


def test_a_first_layer_that_differs_from_the_others_is_kept() -> None:
    with pytest.raises(ValueError, match=r"layers is \[2, 3\], but layer 0 of modernbert differs from the others"):
        take_layers(modernbert(), [2, 3])
    t5 = T5EncoderModel(T5Config(vocab_size=16, d_model=8, d_kv=4, d_ff=8, num_layers=4, num_heads=2))
    with pytest.raises(ValueError, match="layer 0 of t5 differs from the others; keep it too"):
        take_layers(t5, [1, 3])
