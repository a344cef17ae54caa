"""All vectors are turned alike, and their cosines stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

TEXT = "The cat sat on the mat. It was warm there! Did the dog see it?"
PASSAGES = {"sentence_pooling": "mean", "max_sentence_length": 40, "passage_length": 40}
MakeModel = Callable[..., HMDEForDocumentEmbedding]


def orthogonal(size: int) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(4)))[0]


@pytest.mark.parametrize("query_path", ["sentence_encoder", "document_encoder"])
def test_a_rotation_turns_documents_sentences_and_queries_alike(
    labse: Path, tokenizer: HMDETokenizer, make_model: MakeModel, query_path: str
) -> None:
    options = PASSAGES | {"query_path": query_path}
    plain, turned = make_model(labse, **options), make_model(labse, **options, rotation=True)
    matrix = orthogonal(plain.config.hidden_size)
    with torch.no_grad():
        turned.hmde.rotation.weight.copy_(matrix)

    def vectors(model: HMDEForDocumentEmbedding) -> list[np.ndarray]:
        documents, sentences = model.encode_documents([TEXT], tokenizer, sentences=True)
        prepared = model.prepare_sentences([TEXT], tokenizer)
        queries = model.encode_queries(["The cat"], tokenizer)
        return [documents, queries, sentences[0].vectors.numpy(), prepared[0].vectors.numpy()]

    for before, after in zip(vectors(plain), vectors(turned)):
        np.testing.assert_allclose(after, before @ matrix.numpy().T, atol=1e-5)
    (one,), (other,) = (model.explain("The cat", [TEXT], tokenizer) for model in (plain, turned))
    assert other.score == pytest.approx(one.score, abs=1e-5)
    expected = {(begin, end): score for begin, end, score in one.sentences}
    assert {(begin, end): score for begin, end, score in other.sentences} == pytest.approx(expected, abs=1e-5)
