"""The released model: a small difference to its sentence encoder, from which the model is put together again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from hmde.release.difference import dequantise, put_together
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from replications.hmde_small.pack import main, quantise, to_bits


@pytest.fixture
def trained(labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tmp_path: Path) -> Path:
    """An HMDE whose sentence encoder has moved a little from its start, its word embeddings aside."""
    model = make_model(labse, document_norm="pre", max_sentences=7, rotation=True)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in model.hmde.sentence_encoder.named_parameters():
            if "word_embeddings" not in name:
                weight += 1e-3 * torch.randn_like(weight)
        torch.nn.init.orthogonal_(model.hmde.rotation.weight)
    model.save_pretrained(tmp_path / "trained")
    tokenizer = HMDETokenizer.from_sentence_encoder(str(labse), query_prompt="die: ", max_sentences=7)
    tokenizer.save_pretrained(tmp_path / "trained")
    (tmp_path / "trained" / "README.md").write_text("# The card\n")
    return tmp_path / "trained"


def test_a_folder_that_exists_is_not_replaced_and_a_model_without_a_card_not_packed(
    trained: Path, labse: Path, tmp_path: Path
) -> None:
    arguments = ["--model", str(trained), "--base", str(labse), "--output"]
    with pytest.raises(ValueError, match=r"output .* exists; remove it, or name another folder"):
        main([*arguments, str(tmp_path)])
    (trained / "README.md").unlink()
    with pytest.raises(ValueError, match=r"has no README\.md, the card"):
        main([*arguments, str(tmp_path / "release")])


def pack_and_unpack(trained: Path, labse: Path, folder: Path) -> Path:
    main(["--model", str(trained), "--base", str(labse), "--output", str(folder / "release")])
    put_together(folder / "unpacked", labse, folder / "release")
    return folder / "unpacked"


def test_a_packed_model_is_small_and_unpacked_nearly_the_trained_one(trained, labse, documents, tmp_path):
    unpacked = pack_and_unpack(trained, labse, tmp_path)
    names = {path.name for path in (tmp_path / "release").iterdir()}
    assert names == {"config.json", "tokenizer_config.json", "README.md", "difference.safetensors"}
    assert (unpacked / "README.md").read_text() == "# The card\n"
    model, start = (HMDEForDocumentEmbedding.from_pretrained(folder) for folder in (trained, unpacked))
    weights, base = model.state_dict(), HMDEForDocumentEmbedding.from_sentence_encoder(str(labse)).state_dict()
    for name, weight in start.state_dict().items():
        if "document_encoder" in name:
            assert (weight - weights[name]).norm() <= 0.01 * weights[name].norm(), name
        elif weight.ndim < 2 or name == "hmde.rotation.weight" or torch.equal(weights[name], base[name]):
            torch.testing.assert_close(weight, weights[name], rtol=0, atol=1e-7)
        else:
            assert (weight - weights[name]).norm() < 0.25 * (weights[name] - base[name]).norm(), name
    tokenizers = [HMDETokenizer.from_pretrained(folder) for folder in (trained, unpacked)]
    rows = [tokenizer(documents)["input_ids"] for tokenizer in tokenizers]
    assert rows[0] == rows[1]
    queries = [tokenizer(documents, as_queries=True)["input_ids"] for tokenizer in tokenizers]
    assert queries[0] == queries[1]
    vectors = [each.encode_documents(documents, tokenizers[0]) for each in (model, start)]
    assert (vectors[0] * vectors[1]).sum(axis=1).min() > 0.999
    kept = load_file(tmp_path / "release" / "difference.safetensors")
    assert not [name for name in kept if "word_embeddings" in name]


@given(st.integers(1, 8), st.integers(1, 5), st.integers(1, 9), st.integers(0, 1000))
def test_levels_go_into_bits_and_come_out_as_the_values_that_they_stand_for(bits, rows, columns, seed):
    draw = np.random.default_rng(seed)
    levels = torch.from_numpy(draw.integers(0, 2**bits, (rows, columns), dtype=np.uint8))
    scales = torch.from_numpy(draw.random(rows, dtype=np.float32))
    packed = to_bits(levels, bits)
    assert packed.shape == (rows, -(-columns * bits // 8))
    for row in range(rows):
        for column in range(columns):
            expected = (int(levels[row, column]) - (2**bits - 1) / 2) * scales[row]
            assert dequantise(packed, scales, bits, columns)[row, column] == pytest.approx(float(expected))


@pytest.mark.parametrize(("bits", "error"), [(1, 0.62), (2, 0.36), (8, 0.01)])
def test_the_error_of_normal_rows_is_near_the_least_that_even_spaces_allow(bits, error):
    """Relative root mean squares of one and two bits: .603 and .345 (Max 1960, table 2)."""
    torch.manual_seed(0)
    matrix = torch.randn(6, 4096) * torch.tensor([[1e-6], [1e-3], [1.0], [10.0], [1e3], [1e-2]])
    levels, scales = quantise(matrix, bits)
    restored = dequantise(to_bits(levels, bits), scales, bits, 4096)
    assert ((restored - matrix).norm(dim=1) / matrix.norm(dim=1)).max() < error


def test_a_row_of_zeros_stays_one():
    levels, scales = quantise(torch.zeros(2, 5), 2)
    assert dequantise(to_bits(levels, 2), scales, 2, 5).abs().max() < 1e-30


def test_what_does_not_fit_is_refused_before_anything_is_written(trained, labse, xlmr, tmp_path):
    output = ["--output", str(tmp_path / "out")]
    with pytest.raises(ValueError, match="has another model_type than the HMDE"):
        main(["--model", str(trained), "--base", str(xlmr), *output])
    pack_and_unpack(trained, labse, tmp_path)
    with pytest.raises(ValueError, match=r"none has no config\.json; make it with python -m hmde\.release\.e5"):
        put_together(tmp_path / "out", tmp_path / "none", tmp_path / "release")
    with pytest.raises(ValueError, match=r"has no difference\.safetensors"):
        put_together(tmp_path / "out", labse, trained)
    other = HMDEForDocumentEmbedding.from_sentence_encoder(str(labse)).hmde.sentence_encoder
    with torch.no_grad():
        next(other.parameters())[0, 0] += 1
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(ValueError, match="is the difference to other weights than those of"):
        put_together(tmp_path / "out", tmp_path / "other", tmp_path / "release")
    assert not (tmp_path / "out").exists()
