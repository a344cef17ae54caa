"""An exported model computes what the model does, for shapes it was not exported with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.export import Dim

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

DYNAMIC = {"input_ids": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, "attention_mask": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}}


def rows(tokenizer: HMDETokenizer, documents: list[str], **options: object) -> dict[str, torch.Tensor]:
    return dict(tokenizer(documents, padding=True, return_tensors="pt", **options))


@pytest.mark.parametrize(
    ("encoder", "options"),
    [
        ("xlmr", {"sentence_pooling": "pooler", "document_pooling": "dbos"}),
        ("labse", {"sentence_pooling": "cls", "document_positions": True, "attn_implementation": "eager"}),
        ("labse", {"sentence_pooling": "mean", "document_residual": 0.3, "attn_implementation": "sdpa"}),
        ("xlmr", {"sentence_pooling": "mean", "sentence_layer": 1}),
    ],
    ids=["packed", "eager", "sdpa", "middle layer"],
)
def test_torch_export_records_what_the_model_computes(
    encoder: str,
    options: dict,
    request: pytest.FixtureRequest,
    make_model: Callable[..., HMDEForDocumentEmbedding],
    documents: list[str],
) -> None:
    folder = request.getfixturevalue(encoder)
    model = make_model(folder, dtype=torch.float64, **options)
    tokenizer = HMDETokenizer.from_sentence_encoder(str(folder))
    with torch.no_grad():
        program = torch.export.export(model, (), rows(tokenizer, documents[:2]), dynamic_shapes=DYNAMIC).module()
        for texts, padding_side in ((documents, "right"), (documents[2:], "left"), (documents[:1], "right")):
            inputs = rows(tokenizer, texts, padding_side=padding_side)
            expected, actual = model(**inputs), program(**inputs)
            torch.testing.assert_close(actual.pooler_output, expected.pooler_output, rtol=1e-8, atol=1e-8)
            count = expected.sentence_embeddings.shape[1]
            for name in ("sentence_embeddings", "last_hidden_state", "sentence_lengths"):
                torch.testing.assert_close(actual[name][:, :count], expected[name], rtol=1e-8, atol=1e-8)
                assert not actual[name][:, count:].any()


def test_a_traced_model_computes_what_the_model_does(
    labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tokenizer: HMDETokenizer, documents: list[str]
) -> None:
    model = make_model(labse, dtype=torch.float64)
    with torch.no_grad():
        traced = torch.jit.trace(model, example_kwarg_inputs=rows(tokenizer, documents[:2]), strict=False)
        inputs = rows(tokenizer, documents)
        expected = model(**inputs).pooler_output
        torch.testing.assert_close(traced(**inputs)["pooler_output"], expected, rtol=1e-8, atol=1e-8)


def test_transformers_exports_the_model(
    labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tokenizer: HMDETokenizer, documents: list[str]
) -> None:
    exporters = pytest.importorskip("transformers.exporters.exporter_dynamo")
    options = pytest.importorskip("transformers.exporters.configs").DynamoConfig(dynamic=True)
    model = make_model(labse, dtype=torch.float64)
    exported = exporters.DynamoExporter().export(model, rows(tokenizer, documents[:2]), options)
    inputs = rows(tokenizer, documents)
    with torch.no_grad():
        expected = model(**inputs).pooler_output
    torch.testing.assert_close(exported(**inputs).pooler_output, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    "options", [{"passage_length": 128, "sentence_pooling": "mean"}, {}], ids=["passages", "modernbert"]
)
def test_what_cannot_be_exported_from_rows_is_refused(
    options: dict,
    request: pytest.FixtureRequest,
    make_model: Callable[..., HMDEForDocumentEmbedding],
    documents: list[str],
) -> None:
    folder = request.getfixturevalue("labse" if options else "modernbert")
    inputs = rows(HMDETokenizer.from_sentence_encoder(str(folder)), documents)
    with pytest.raises(
        Exception, match=r"cannot be exported from rows of tokens: only bert.* release_tools\.export_onnx"
    ):
        torch.export.export(make_model(folder, **options), (), inputs)


onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; it is in the extra 'onnx'")
pytest.importorskip("onnxscript", reason="onnxscript is not installed; it is in the extra 'onnx'")
export_onnx = pytest.importorskip("release_tools.export_onnx")


PASSAGES = {
    "sentence_pooling": "mean",
    "max_sentence_length": 40,
    "passage_length": 40,
    "document_pooling": "token_mean",
}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"sentence_pooling": "pooler"}, id="pooler"),
        pytest.param({"sentence_pooling": "cls", "sentence_layer": 1, "document_norm": "pre"}, id="cls"),
        pytest.param(PASSAGES, id="passages"),
    ],
)
def test_onnx_runtime_embeds_documents_and_queries_as_pytorch_does(
    options: dict,
    xlmr: Path,
    make_model: Callable[..., HMDEForDocumentEmbedding],
    documents: list[str],
    tmp_path: Path,
) -> None:
    model = make_model(xlmr, **options)
    model.save_pretrained(tmp_path)
    tokenizer = HMDETokenizer.from_sentence_encoder(str(xlmr), sentence_prompt="der: ", query_prompt="die: ")
    export_onnx.main(["--model", str(tmp_path)])
    expected = model.encode_documents(documents, tokenizer, normalize=False)
    queries = model.encode_queries(documents, tokenizer, normalize=False)
    atol = 1e-5 * np.abs(expected).max()

    def by_passage(texts: list[str], **reading: bool) -> dict[str, np.ndarray]:
        return tokenizer.by_passage(tokenizer(texts, **reading)["input_ids"], model.config.passage_length)

    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx")
    found, _ = session.run(None, by_passage(documents))
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
    found, _ = session.run(None, by_passage(documents[:1]))
    np.testing.assert_allclose(found, expected[:1], rtol=0, atol=atol)
    _, found = session.run(None, by_passage(documents, as_queries=True))
    np.testing.assert_allclose(found[:, 0], queries, rtol=0, atol=1e-5 * np.abs(queries).max())

    quantized = onnxruntime.InferenceSession(tmp_path / "onnx" / "model_quantized.onnx")
    found, _ = quantized.run(None, by_passage(documents))
    cosines = (found * expected).sum(axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    assert 0.9 < cosines.min() < 1 - 1e-7
