"""An adapter is trained and merged in encoders of every family."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.encoder_families import FAMILIES, save_family

pytest.importorskip("peft", reason="peft is not installed")

from training.lora import Lora, add_lora, merged_weights


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_gradient_step_trains_the_adapter_alone_and_merges(name: str, tmp_path: Path) -> None:
    folder = str(save_family(FAMILIES[name], tmp_path))
    options = {"num_document_attention_heads": 4, "document_intermediate_size": 64}
    model = HMDEForDocumentEmbedding.from_sentence_encoder(folder, **options)
    inputs = HMDETokenizer.from_sentence_encoder(folder)(["The cat sat.\nIt was warm.", "Кот"], padding=True)
    rows = {key: torch.tensor(value) for key, value in inputs.items()}
    add_lora(model.hmde.sentence_encoder, Lora(rank=2))
    weights = {key: weight for key, weight in model.hmde.sentence_encoder.named_parameters() if weight.requires_grad}
    assert weights
    assert all("lora_" in key for key in weights)
    before = model(**rows).pooler_output
    before[:, 0].sum().backward()
    with torch.no_grad():
        for weight in weights.values():
            weight -= 0.1 * weight.grad  # type: ignore[operator]
        after = model(**rows).pooler_output
        assert not torch.allclose(before, after, atol=1e-6)
        plain = HMDEForDocumentEmbedding.from_sentence_encoder(folder, **options)
        plain.load_state_dict(merged_weights(model))
        torch.testing.assert_close(plain(**rows).pooler_output, after, rtol=1e-4, atol=1e-4)
