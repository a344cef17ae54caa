"""An exported model computes what the model does, for shapes it was not exported with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.export import Dim

from hmde.commands.options import ExportOptions
from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDETokenizer
from tests.encoder_families import FAMILIES, save_family

DYNAMIC = {
    "input_ids": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC, 2: Dim.DYNAMIC},
    "attention_mask": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC, 2: Dim.DYNAMIC},
    "sentence_lengths": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC},
}
PASSAGES = {
    "sentence_pooling": "mean",
    "max_sentence_length": 40,
    "passage_length": 40,
    "document_pooling": "token_mean",
}
EAGER = {
    "sentence_pooling": "mean",
    "document_positions": True,
    "document_residual": 0.3,
    "document_first_sentence": 0.2,
    "attn_implementation": "eager",
}
ENCODERS = [
    pytest.param("xlmr", {"sentence_pooling": "pooler", "document_pooling": "dbos"}, id="pooler"),
    pytest.param("labse", EAGER, marks=pytest.mark.slow, id="eager with a residual"),
    pytest.param("xlmr", PASSAGES, marks=pytest.mark.slow, id="passages"),
    pytest.param("modernbert", {"sentence_pooling": "mean"}, marks=pytest.mark.slow, id="modernbert"),
]


def rows(tokenizer: HMDETokenizer, documents: list[str]) -> dict[str, torch.Tensor]:
    return dict(tokenizer(documents, padding=True, return_tensors="pt"))


def passages(
    tokenizer: HMDETokenizer, model: HMDEForDocumentEmbedding, documents: list[str]
) -> dict[str, torch.Tensor]:
    inputs = tokenizer.by_passage(tokenizer(documents), model.config)
    return {name: torch.from_numpy(array) for name, array in inputs.items()}


def make_models(
    make_model: Callable[..., HMDEForDocumentEmbedding], folder: Path, options: dict
) -> tuple[HMDEForDocumentEmbedding, HMDEForDocumentEmbedding, HMDETokenizer]:
    """The model as it is used, the same with an attention that can be exported, and the tokenizer."""
    used = make_model(folder, dtype=torch.float64, **options)
    exportable = make_model(folder, dtype=torch.float64, **{"attn_implementation": "sdpa"} | options)
    return used, exportable, HMDETokenizer.from_sentence_encoder(str(folder))


def by_passage(model: HMDEForDocumentEmbedding) -> torch.nn.Module:
    """The model as it is exported."""
    model.hmde.forward = model.hmde.forward_by_passage  # type: ignore[method-assign]
    return model.hmde


@pytest.mark.parametrize(("passage_length", "number_of_passages"), [(0, 2), (100, 1)])
def test_rows_are_laid_out_by_passage_for_an_exported_model(
    labse: Path, passage_length: int, number_of_passages: int
) -> None:
    tokenizer = HMDETokenizer.from_sentence_encoder(str(labse))
    encoded = tokenizer(["The cat sat. The dog.", "The cat."])
    rows = encoded["input_ids"]
    sentence_config = {"model_type": "bert", "vocab_size": len(tokenizer)}
    config = HMDEConfig(
        sentence_config=sentence_config,
        sentence_pooling="mean",
        max_sentence_length=50,
        passage_length=passage_length,
        start_token_id=tokenizer.start_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    found = tokenizer.by_passage(encoded, config)
    assert found["input_ids"].shape[:2] == (2, number_of_passages)
    first = rows[0].index(tokenizer.start_token_id, 1)
    left_out = 2 - number_of_passages  # of either sentence, where they are read as one text
    lengths = [first - left_out, len(rows[0]) - first - left_out]
    assert found["sentence_lengths"].tolist() == [lengths, [len(rows[1]), 0]]
    read = rows[0][: first - left_out] + rows[0][first + left_out :]
    for row, ids, mask in zip([read, rows[1]], found["input_ids"], found["attention_mask"], strict=True):
        assert ids[mask == 1].tolist() == row
        assert (ids[mask == 0] == tokenizer.pad_token_id).all()


@pytest.mark.parametrize(("encoder", "options"), ENCODERS)
def test_torch_export_records_what_the_model_computes(
    encoder: str,
    options: dict,
    request: pytest.FixtureRequest,
    make_model: Callable[..., HMDEForDocumentEmbedding],
    documents: list[str],
) -> None:
    used, exportable, tokenizer = make_models(make_model, request.getfixturevalue(encoder), options)
    with torch.no_grad():
        example = passages(tokenizer, used, [" ".join(documents * 3), documents[0]])  # several passages
        program = torch.export.export(by_passage(exportable), (), example, dynamic_shapes=DYNAMIC).module()
        for texts in (documents, documents[2:], documents[:1]):
            expected, actual = used(**rows(tokenizer, texts)), program(**passages(tokenizer, used, texts))
            for name in ("pooler_output", "sentence_embeddings", "last_hidden_state", "sentence_lengths"):
                torch.testing.assert_close(actual[name], expected[name], rtol=1e-8, atol=1e-8)


def test_the_inputs_of_an_exporter_give_the_embeddings_and_gradients_of_rows(
    labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding], documents: list[str]
) -> None:
    used, exportable, tokenizer = make_models(make_model, labse, {"sentence_pooling": "mean"})
    used(**rows(tokenizer, documents)).pooler_output.square().sum().backward()
    by_passage(exportable)(**passages(tokenizer, used, documents)).pooler_output.square().sum().backward()
    for (name, expected), actual in zip(used.named_parameters(), exportable.parameters(), strict=True):
        torch.testing.assert_close(actual.grad, expected.grad, rtol=1e-8, atol=1e-8, msg=name)


def test_packed_attention_cannot_be_exported(
    labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding], documents: list[str]
) -> None:
    used, _, tokenizer = make_models(make_model, labse, {})
    with pytest.raises(Exception, match=r'to export the model.*set_attn_implementation\("sdpa"\)'):
        torch.export.export(by_passage(used), (), passages(tokenizer, used, documents))


onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; it is in the extra 'onnx'")
pytest.importorskip("onnxscript", reason="onnxscript is not installed; it is in the extra 'onnx'")
export_onnx = pytest.importorskip("hmde.commands.export")


@pytest.fixture(scope="module")
def sentences_folder(
    xlmr: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An exported HMDE whose passages are sentences."""
    folder = tmp_path_factory.mktemp("sentences")
    options = {"sentence_pooling": "pooler", "document_norm": "pre", "num_document_layers": 1}
    make_model(xlmr, **options).save_pretrained(folder)
    HMDETokenizer.from_sentence_encoder(str(xlmr), query_prompt="die: ").save_pretrained(folder)
    export_onnx.main(ExportOptions(str(folder)))
    return folder


@pytest.mark.parametrize(
    "reading",
    [
        pytest.param("exported_folder", id="passages"),
        pytest.param("sentences_folder", id="sentences", marks=pytest.mark.slow),
    ],
)
def test_onnx_runtime_embeds_documents_and_queries_as_pytorch_does(
    reading: str, request: pytest.FixtureRequest, documents: list[str]
) -> None:
    folder = request.getfixturevalue(reading)
    model = HMDEForDocumentEmbedding.from_pretrained(folder)
    tokenizer = HMDETokenizer.from_pretrained(folder)
    expected = model.encode_documents(documents, tokenizer, normalize=False)
    queries = model.encode_queries(documents, tokenizer, normalize=False)
    atol = 1e-5 * np.abs(expected).max()

    def by_passage(texts: list[str], **reading: bool) -> dict[str, np.ndarray]:
        return tokenizer.by_passage(tokenizer(texts, **reading), model.config)

    session = onnxruntime.InferenceSession(folder / "onnx" / "model.onnx")
    found, _ = session.run(None, by_passage(documents))
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
    found, _ = session.run(None, by_passage(documents[:1]))
    np.testing.assert_allclose(found, expected[:1], rtol=0, atol=atol)
    _, found = session.run(None, by_passage(documents, as_queries=True))
    np.testing.assert_allclose(found[:, 0], queries, rtol=0, atol=1e-5 * np.abs(queries).max())

    quantized = onnxruntime.InferenceSession(folder / "onnx" / "model_quantized.onnx")
    found, _ = quantized.run(None, by_passage(documents))
    cosines = (found * expected).sum(axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.998
    assert not np.array_equal(found, expected)
    for document, vector in zip(documents, found, strict=True):
        (alone,), _ = quantized.run(None, by_passage([document]))
        np.testing.assert_allclose(alone, vector, rtol=0, atol=1e-5 * np.abs(vector).max())


SMALLEST = {"qwen3-embedding": {"num_hidden_layers": 1}, "embeddinggemma": {}, "umt5": {"num_layers": 1}}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_causal_and_other_families_are_exported_with_their_modules_and_passages(
    name: str, make_model: Callable[..., HMDEForDocumentEmbedding], documents: list[str], tmp_path: Path
) -> None:
    family = FAMILIES[name]
    folder = save_family(replace(family, config=family.config | SMALLEST[name]), tmp_path)
    options = {"max_sentence_length": 100, "passage_length": 200, "num_document_layers": 1}
    model = make_model(folder, **options)
    tokenizer = HMDETokenizer.from_sentence_encoder(str(folder))
    export_onnx.export(make_model(folder, attn_implementation="eager", **options), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found, _ = session.run(None, tokenizer.by_passage(tokenizer(documents), model.config))
    expected = model.encode_documents(documents, tokenizer, normalize=False)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())
