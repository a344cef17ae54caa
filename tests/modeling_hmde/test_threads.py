"""Encoding with one model and one tokenizer from many threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.inference_hmde import read_ahead

MakeModel = Callable[..., HMDEForDocumentEmbedding]


def test_threads_that_encode_with_one_model_and_tokenizer_get_its_vectors(
    labse: Path, make_model: MakeModel, tokenizer: HMDETokenizer, documents: list[str]
) -> None:
    model = make_model(labse)
    expected = model.encode_documents(documents, tokenizer)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: model.encode_documents(documents, tokenizer), range(64)))
    for vectors in found:
        np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_each_module_is_in_its_mode_again_after_encoding(
    labse: Path, make_model: MakeModel, tokenizer: HMDETokenizer, documents: list[str]
) -> None:
    model = make_model(labse).train()
    model.hmde.document_encoder.eval()
    modes = [module.training for module in model.modules()]
    assert len({*modes}) == 2
    vectors = model.encode_documents(documents, tokenizer)
    assert [module.training for module in model.modules()] == modes
    np.testing.assert_array_equal(vectors, model.eval().encode_documents(documents, tokenizer))


def test_reading_ahead_stops_at_its_depth_and_an_error_comes_after_the_items_before_it() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(9):
            made.append(number)
            yield number
        raise ValueError("the tenth")

    ahead = read_ahead(items(), depth=3)
    assert next(ahead) == 0
    ahead.close()
    assert len(made) <= 4
    found: list[int] = []
    with pytest.raises(ValueError, match="the tenth"):
        found.extend(read_ahead(items(), depth=3))
    assert found == list(range(9))
