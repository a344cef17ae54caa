"""An exported model computes what the model does, for shapes it was not exported with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; it is in the extra 'onnx'")
pytest.importorskip("onnxscript", reason="onnxscript is not installed; it is in the extra 'onnx'")
export = pytest.importorskip("training.export")


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
        pytest.param({"sentence_pooling": "mean", "document_norm": "pre"}, id="mean"),
        pytest.param({"sentence_pooling": "cls"}, id="cls"),
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
    export.main(["--model", str(tmp_path)])
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
