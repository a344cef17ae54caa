"""Systems of sentence-transformers, beside plain transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers import models as modules
from transformers import AutoModel, AutoTokenizer

from evaluation.systems import check_systems, load_system
from replications.evaluation_recipe import OtherSystemOptions  # which makes the kind known

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sentence_transformer(labse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LaBSE as it is meant to be used: [CLS], a dense layer with tanh, unit length."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("sentence-transformer")
    transformer = modules.Transformer(str(labse))
    dense = modules.Dense(32, 32, activation_function=torch.nn.Tanh())
    parts = [transformer, modules.Pooling(32, pooling_mode="cls"), dense, modules.Normalize()]
    SentenceTransformer(modules=parts, prompts={"query": "see ", "document": ""}).save(str(folder))
    return folder


def test_a_model_of_sentence_transformers_keeps_its_dense_layer_and_prompts(
    sentence_transformer: Path, labse: Path, documents: list[str]
) -> None:
    recipe = OtherSystemOptions("sentence_transformers", model=str(sentence_transformer))
    check_systems({"labse": recipe})
    system = load_system(recipe)
    dense = SentenceTransformer(str(sentence_transformer))[2].linear
    encoder, tokenizer = AutoModel.from_pretrained(labse), AutoTokenizer.from_pretrained(labse)

    def vector(text: str) -> np.ndarray:
        with torch.no_grad():
            ids = tokenizer(text, truncation=True, max_length=512, return_tensors="pt")["input_ids"]
            found = torch.tanh(dense(encoder(ids).last_hidden_state[0, 0]))
        return (found / found.norm()).numpy()

    texts = [*documents, "cat " * 600]
    assert system.encode_documents(texts, "en") == pytest.approx(np.stack([vector(t) for t in texts]), abs=1e-5)
    expected = np.stack([vector(f"see {text}") for text in texts])
    assert system.encode_queries(texts) == pytest.approx(expected, abs=1e-5)
    own = load_system(
        OtherSystemOptions("sentence_transformers", model=str(sentence_transformer), query_prompt="the ", max_length=5)
    )
    assert own.encode_queries(["cat sat on the mat"]) == pytest.approx(own.encode_queries(["cat sat dog"]), abs=1e-6)
