"""A pipeline of sentence-transformers gives the vectors of sentence-transformers, or an error that says what is in the
way; never other vectors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import CNN, Dropout, LayerNorm, Pooling
from torch import nn

from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.attention_hmde import packed_attention
from tests.encoder_families import FAMILIES, SIZE, save_family

TEXTS = ["The Cat sat on the mat, and it was warm.", "Кот", "a"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_family(FAMILIES["bert"], tmp_path_factory.mktemp("bert")).parent / "plain")


class Square(nn.Module):
    """An activation of one's own, which HMDE cannot know."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return vectors**2


def open_both(folder: Path) -> tuple[HMDEForDocumentEmbedding, HMDETokenizer]:
    model = HMDEForDocumentEmbedding.from_sentence_encoder(str(folder), num_document_attention_heads=1)
    return model, HMDETokenizer.from_sentence_encoder(str(folder))


@pytest.mark.parametrize("pooling", ["cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken"])
def test_a_pipeline_of_all_that_hmde_knows_gives_its_own_vectors(pooling: str, plain: str, tmp_path: Path) -> None:
    """Read in lower case, with a prompt, and with a pooling as versions before 5 wrote it."""
    torch.manual_seed(0)
    modules = [
        Transformer(plain, do_lower_case=True),
        Pooling(SIZE),
        Dense(SIZE, 24, bias=False, activation_function=nn.GELU(), use_residual=True),
        LayerNorm(24),
        Dropout(0.3),
        Dense(24, 24, activation_function=nn.Sigmoid(), use_residual=True),
        Normalize(),
    ]
    options: dict[str, Any] = {"prompts": {"query": "Find: "}, "truncate_dim": 8, "device": "cpu"}
    SentenceTransformer(modules=modules, **options).save(str(tmp_path))
    key = {"cls": "cls_token", "lasttoken": "lasttoken"}.get(pooling, f"{pooling}_tokens")
    old = {"word_embedding_dimension": SIZE, "pooling_mode_mean_tokens": False, f"pooling_mode_{key}": True}
    next(tmp_path.glob("*_Pooling/config.json")).write_text(json.dumps(old))
    model, tokenizer = open_both(tmp_path)
    expected = SentenceTransformer(str(tmp_path), device="cpu").encode_query(TEXTS, batch_size=1)
    found = model.encode_queries(TEXTS, tokenizer, normalize=False)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def save(plain: str, folder: Path, *modules: Any, **options: Any) -> str:
    SentenceTransformer(modules=[Transformer(plain), *modules], device="cpu", **options).save(str(folder))
    return str(folder)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ([CNN(SIZE, SIZE, [1]), Pooling(SIZE)], r"begins with .*cnn\.CNN; HMDE reads a Transformer and a Pooling"),
        ([Pooling(SIZE, ["cls", "max"])], "joins cls, max; .* give it as sentence_pooling"),
        ([Pooling(SIZE), Dense(SIZE, 8, activation_function=Square())], r"has the activation tests\..*Square"),
        ([Pooling(SIZE), Dense(SIZE, 8, module_input_name="token_embeddings")], "Dense module has module_input_name"),
        ([Pooling(SIZE, include_prompt=False)], "leaves the prompt's tokens out"),
    ],
)
def test_what_is_not_known_is_named(modules: list[Any], message: str, plain: str, tmp_path: Path) -> None:
    folder = save(plain, tmp_path, *modules, prompts={"query": "Find: "})
    with pytest.raises(ValueError, match=message):
        HMDEForDocumentEmbedding.from_sentence_encoder(folder, num_document_attention_heads=1)


def test_a_pipeline_of_an_old_version_is_read(plain: str, tmp_path: Path) -> None:
    """Its dense layer has a bias and a tanh without saying so, and its weights are no safetensors."""
    folder = save(plain, tmp_path, Pooling(SIZE), Dense(SIZE, 16))
    (dense,) = tmp_path.glob("*_Dense")
    torch.save(load_file(dense / "model.safetensors"), dense / "pytorch_model.bin")
    (dense / "model.safetensors").unlink()
    (dense / "config.json").write_text(json.dumps({"in_features": SIZE, "out_features": 16}))
    model, tokenizer = open_both(tmp_path)
    expected = SentenceTransformer(folder, device="cpu").encode_query(TEXTS, batch_size=1)
    np.testing.assert_allclose(model.encode_queries(TEXTS, tokenizer, normalize=False), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("sequence", [list, tuple])
def test_modules_that_are_given_are_new_and_those_of_the_folder_have_its_weights(
    sequence: type, plain: str, tmp_path: Path
) -> None:
    dense = Dense(SIZE, SIZE, activation_function=nn.Identity())
    nn.init.constant_(dense.linear.bias, 7.0)
    folder = save(plain, tmp_path, Pooling(SIZE), dense)
    own = HMDEForDocumentEmbedding.from_sentence_encoder(folder, num_document_attention_heads=1)
    assert own.hmde.sentence_modules[0].linear.bias.unique().tolist() == [7.0]
    modules = sequence(own.config.sentence_modules)
    new = HMDEForDocumentEmbedding.from_sentence_encoder(
        folder, num_document_attention_heads=1, sentence_modules=modules
    )
    assert 7.0 not in new.hmde.sentence_modules[0].linear.bias


def test_a_pipeline_that_names_no_pooling_takes_the_mean(plain: str, tmp_path: Path) -> None:
    """As sentence-transformers does."""
    save(plain, tmp_path, Pooling(SIZE, "cls"))
    next(tmp_path.glob("*_Pooling/config.json")).write_text(json.dumps({"word_embedding_dimension": SIZE}))
    assert open_both(tmp_path)[0].config.sentence_pooling == "mean"


def test_a_transformer_by_itself_takes_the_modules_that_are_given(plain: str, tmp_path: Path) -> None:
    SentenceTransformer(modules=[Transformer(plain), Pooling(SIZE, "cls")], device="cpu").save(str(tmp_path))
    (tmp_path / "modules.json").unlink()
    options = {"num_document_attention_heads": 1, "sentence_modules": [{"type": "normalize"}]}
    model = HMDEForDocumentEmbedding.from_sentence_encoder(str(tmp_path), **options)
    vectors = model.encode_queries(TEXTS, HMDETokenizer.from_sentence_encoder(str(tmp_path)), normalize=False)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=0, atol=1e-6)


def test_a_module_without_its_weights_is_named(plain: str, tmp_path: Path) -> None:
    folder = save(plain, tmp_path, Pooling(SIZE), Dense(SIZE, SIZE))
    (tmp_path / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="2_Dense has no weights; download or copy the encoder again"):
        HMDEForDocumentEmbedding.from_sentence_encoder(folder, num_document_attention_heads=1)


def test_what_is_read_from_the_checkpoint_cannot_be_given(plain: str) -> None:
    with pytest.raises(ValueError, match=r"pad_token_id: read from .*, so leave it out"):
        HMDEForDocumentEmbedding.from_sentence_encoder(plain, pad_token_id=0)


def test_an_unknown_module_is_never_dropped_but_by_choice(plain: str, tmp_path: Path) -> None:
    folder = save(plain, tmp_path, Pooling(SIZE, "cls"), Dense(SIZE, SIZE))
    listed = (tmp_path / "modules.json").read_text()
    (tmp_path / "modules.json").write_text(re.sub(r"sentence_transformers[\w.]*\.Dense", "custom_st.Head", listed))
    with pytest.raises(ValueError, match=r"has the module custom_st\.Head, which HMDE does not know"):
        HMDEForDocumentEmbedding.from_sentence_encoder(folder)
    chosen = HMDEForDocumentEmbedding.from_sentence_encoder(folder, sentence_modules=())
    assert (chosen.config.sentence_pooling, chosen.config.sentence_modules) == ("cls", ())


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ({"type": "cnn"}, "its type must be one of dense"),
        ({"type": "truncate"}, "has the fields size"),
        ({"type": ["cnn"]}, "its type must be one of dense"),
        ({"type": "layer_norm", "dimension": 8}, "reads vectors of 8 numbers, but gets vectors of 768"),
    ],
)
def test_an_impossible_module_is_refused(module: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HMDEConfig(sentence_modules=[module])


def test_prompts_are_the_pipelines_unless_given(tmp_path: Path) -> None:
    folder = str(save_family(FAMILIES["embeddinggemma"], tmp_path))
    tokenizer = HMDETokenizer.from_sentence_encoder(folder)
    assert (tokenizer.query_prompt, tokenizer.sentence_prompt) == (
        "task: search result | query: ",
        "title: none | text: ",
    )
    chosen = HMDETokenizer.from_sentence_encoder(folder, query_prompt="title: none | text: ", sentence_prompt="")
    assert (chosen.query_prompt, chosen.sentence_prompt) == ("title: none | text: ", "")
    with pytest.raises(ValueError, match=r"has <eos>, but HMDE reads no special token in a text"):
        HMDETokenizer.from_sentence_encoder(folder, query_prompt="<eos> ")


def test_an_attention_that_could_make_a_causal_encoder_bidirectional_is_refused() -> None:
    states = torch.ones(1, 2, 3, 4)
    bounds = {"cu_seq_lens_q": torch.tensor([0, 3]), "max_length_q": 3}
    with pytest.raises(ValueError, match="Linear does not say whether it is causal"):
        packed_attention(nn.Linear(1, 1), states, states, states, None, **bounds)
    layer = nn.Linear(1, 1)
    layer.is_causal = True  # type: ignore[assignment]
    with pytest.raises(ValueError, match="Linear bounds its scores"):
        packed_attention(layer, states, states, states, None, softcap=50.0, **bounds)
