"""What is wrong with a saved model is found when it is loaded, before it takes memory, and never changes a vector."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hmde.common.saved_models import load_hmde, model_type_of
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.loading_hmde import check_weights


@pytest.fixture
def damaged(model_folder: Path, tmp_path: Path) -> Path:
    """A copy of a saved HMDE, to be damaged."""
    return shutil.copytree(model_folder, tmp_path / "damaged")


def change_weights(folder: Path, part: str, weight: torch.Tensor | None) -> None:
    """Replace the weights whose names hold `part`, or take them out."""
    weights = load_file(folder / "model.safetensors")
    changed = {name: weight if part in name else kept for name, kept in weights.items()}
    kept = {name: value for name, value in changed.items() if value is not None}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def change_config(folder: Path, **fields: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))


@pytest.mark.parametrize("part", ["hmde.document_encoder", "hmde.sentence_encoder", "hmde.document_encoder.dbos"])
def test_a_folder_that_lacks_weights_is_refused_and_none_are_drawn(damaged: Path, part: str) -> None:
    change_weights(damaged, part, None)
    with pytest.raises(ValueError, match=rf"damaged lacks \d+ weights .*{part}"):
        HMDEForDocumentEmbedding.from_pretrained(damaged)


def test_the_first_three_weights_that_are_missing_are_named_in_order() -> None:
    check_weights("model", ())
    with pytest.raises(ValueError, match=r"model lacks 3 weights .* \(a, b, c\); save the model anew"):
        check_weights("model", ["c", "a", "b"])
    with pytest.raises(ValueError, match=r"model lacks 4 weights .* \(a, b, c, \.\.\.\); save the model anew"):
        check_weights("model", ["d", "c", "a", "b"])


def test_weights_in_several_files_of_a_new_folder_are_loaded(model: HMDEForDocumentEmbedding, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "model"
    model.save_pretrained(folder, max_shard_size="50KB")
    assert len([*folder.glob("*.safetensors")]) > 1
    loaded = HMDEForDocumentEmbedding.from_pretrained(folder)
    assert all(torch.equal(there, here) for there, here in zip(loaded.parameters(), model.parameters(), strict=True))


def test_a_sentence_encoder_that_lacks_weights_is_refused(damaged: Path, labse: Path) -> None:
    folder = shutil.copytree(labse, damaged / "labse")
    change_weights(folder, "layer.1.", None)
    with pytest.raises(ValueError, match=r"labse lacks \d+ weights"):
        HMDEForDocumentEmbedding.from_sentence_encoder(str(folder), num_document_attention_heads=4)


def test_weights_of_absurd_sizes_are_refused_before_they_are_made(damaged: Path) -> None:
    change_config(damaged, document_intermediate_size=10**15)
    with pytest.raises(ValueError, match=r"lacks .* in other shapes"):
        HMDEForDocumentEmbedding.from_pretrained(damaged)


def test_a_vector_that_is_not_finite_is_an_error_that_names_the_text(model_folder: Path) -> None:
    model = HMDEForDocumentEmbedding.from_pretrained(model_folder)
    tokenizer = HMDETokenizer.from_pretrained(model_folder)
    (token,) = tokenizer("cat", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        model.get_input_embeddings().weight[token] = torch.nan
    assert model.encode_documents(["Der Hund."], tokenizer).shape[0] == 1
    texts = ["Der Hund.", "Der Hund.", "The cat sat.", "The cat sat. The cat."]
    for options in ({}, {"sentences": True}):
        with pytest.raises(ValueError, match="the vector of text 2 is not finite"):
            model.encode_documents(texts, tokenizer, **options)
    with pytest.raises(ValueError, match="the vector of text 2 is not finite"):
        model.explain("Der Hund.", texts, tokenizer)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *(("config.json", content) for content in ("[]", "null", "NaN", "[" * 100_000, "\x00")),
        *(("tokenizer.json", content) for content in ("[]", "{}", "[" * 100_000)),
        *(("tokenizer_config.json", content) for content in ("[]", "{}", '{"max_sentences": NaN}')),
        *(("model.safetensors", content) for content in ("", "\xff" * 100, "[]")),
    ],
)
def test_damage_of_any_kind_is_one_error_that_names_the_folder(damaged: Path, file: str, content: str) -> None:
    (damaged / file).write_text(content)
    with pytest.raises(ValueError, match=r"damaged does not open, "):
        load_hmde(str(damaged), torch.float32)


def test_code_of_a_folder_is_not_asked_for_on_the_terminal(damaged: Path) -> None:
    change_config(damaged, model_type="other", auto_map={"AutoConfig": "evil.Config"})
    with pytest.raises(ValueError, match=r"model: .*damaged does not open, .*custom code"):
        model_type_of("model", str(damaged))
