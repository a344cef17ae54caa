"""What transformers and PEFT do to a model, done to this one: halving, adapters, too old a version."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from transformers import AutoModel

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer, configuration_hmde


@pytest.fixture(scope="module")
def folder(model: HMDEForDocumentEmbedding, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def embed(tokenizer: HMDETokenizer, documents: list[str]) -> Callable[[HMDEForDocumentEmbedding], torch.Tensor]:
    return lambda model: model.encode_documents(documents, tokenizer, return_tensors="pt").float()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_of_half_precision_embeds_nearly_the_same(
    dtype: torch.dtype, folder: Path, model: HMDEForDocumentEmbedding, embed: Callable
) -> None:
    expected = embed(model)
    halved = AutoModel.from_pretrained(folder).to(dtype)
    loaded = AutoModel.from_pretrained(folder, dtype=dtype)
    assert {each.dtype for each in loaded.parameters()} == {dtype}
    for half in (embed(halved), embed(loaded)):
        assert (half * expected).sum(dim=1).min() > 0.99
        assert not torch.equal(half, expected)


def test_lora_trains_the_sentence_encoder_by_its_adapters_alone(
    folder: Path,
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    documents: list[str],
    embed: Callable,
    tmp_path: Path,
) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed; it is in the extra 'integrations'")
    options = peft.LoraConfig(r=4, target_modules=r".*sentence_encoder.*\.(query|value)", init_lora_weights=True)
    adapted = peft.get_peft_model(AutoModel.from_pretrained(folder), options)
    torch.testing.assert_close(embed(adapted), embed(model))
    trainable = [name for name, weight in adapted.named_parameters() if weight.requires_grad]
    assert len(trainable) == 2 * 2 * 2  # layers, query and value, two factors each
    assert all("sentence_encoder" in name and "lora" in name for name in trainable)

    optimizer = torch.optim.SGD([weight for weight in adapted.parameters() if weight.requires_grad], lr=1.0)
    for _ in range(2):
        adapted(**tokenizer(documents, padding=True, return_tensors="pt")).pooler_output.square().mean().backward()
        optimizer.step()
    trained = embed(adapted)
    assert not torch.allclose(trained, embed(model), atol=1e-3)

    adapted.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(AutoModel.from_pretrained(folder), tmp_path)
    torch.testing.assert_close(embed(again), trained)
    torch.testing.assert_close(embed(again.merge_and_unload()), trained, atol=1e-5, rtol=1e-4)


def test_too_old_a_transformers_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(transformers.configuration_utils, "SubConfigSpec")
    monkeypatch.setattr(transformers, "__version__", "4.57.0")
    with pytest.raises(ImportError, match=r"needs transformers 5.20 or newer, and this is 4.57.0: pip install"):
        runpy.run_path(configuration_hmde.__file__)
