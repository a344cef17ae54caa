"""T-MDE_P's encoder against its equations, and the folder that it leaves."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModel

from evaluation.recipes import SystemOptions
from evaluation.systems import load_system
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from replications.t_mde.modeling_tmde import TMDEConfig, TMDEModel
from tests.tiny_encoders import randomise, unigram_tokenizer

pytestmark = pytest.mark.slow

IDS = torch.tensor([[0, 5, 9, 6, 2], [0, 7, 2, 1, 1]])
MASK = (IDS != 1).long()
SIZES = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 200}


def tmde(num_hidden_layers: int = 4, num_queries: int = 8) -> TMDEModel:
    sizes = SIZES | {"num_hidden_layers": num_hidden_layers, "num_queries": num_queries}
    model = TMDEModel(TMDEConfig(vocab_size=len(unigram_tokenizer()), **sizes))
    randomise(model, seed=1)
    return model.eval()


def slow_look(layer, queries: Tensor, states: Tensor) -> Tensor:
    """FFN(F_MH(queries, states, states)) of a pre-norm layer, query by query and head by head, (queries, hidden)."""
    attention, heads = layer.attention, layer.attention.self.num_attention_heads
    width = queries.shape[1] // heads
    results = []
    for query_vector in queries:
        query = attention.self.query(attention.LayerNorm(query_vector))
        keys = [attention.self.key(attention.LayerNorm(state)) for state in states]
        values = [attention.self.value(attention.LayerNorm(state)) for state in states]
        parts = []
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            scores = [math.exp(float(query[part] @ key[part]) / math.sqrt(width)) for key in keys]
            parts.append(sum(score / sum(scores) * value[part] for score, value in zip(scores, values)))
        seen = query_vector + attention.output.dense(torch.cat(parts))
        between = torch.nn.functional.gelu(layer.intermediate.dense(layer.intermediate.LayerNorm(seen)))
        results.append(seen + layer.output.dense(between))
    return torch.stack(results)


@torch.no_grad()
@pytest.mark.parametrize(("num_layers", "num_queries"), [(7, 32), (4, 8), (3, 4)])
def test_t_mde_p_is_equations_4_8_to_4_17(num_layers, num_queries):
    model = tmde(num_layers, num_queries)
    found = model(IDS, MASK)
    for row, length in enumerate(MASK.sum(dim=1).tolist()):
        layers = model.encoder.layer
        states = [model.embeddings(input_ids=IDS[row : row + 1, :length])[0]]  # H^0
        for layer in layers[: num_layers - 1]:
            states.append(slow_look(layer, states[-1], states[-1]))
        base = num_layers - 3  # 4, of seven layers
        queries = slow_look(layers[base], model.queries, states[base])
        queries = slow_look(layers[base + 1], queries[: num_queries // 2], queries)
        queries = slow_look(layers[base + 2], queries[: num_queries // 4], queries)
        starts = [layer_weights[0] for layer_weights in reversed(states[1:])]
        vector = slow_look(layers[-1], states[-1][:1], torch.stack([*starts, *queries]))
        torch.testing.assert_close(found.pooler_output[row], model.LayerNorm(vector[0]), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            found.last_hidden_state[row, 1:length], model.LayerNorm(states[-1][1:]), rtol=1e-4, atol=1e-4
        )


def test_t_mde_p_has_one_layer_and_the_queries_more_than_t_mde():
    """13 million, as table 4.1 has it."""
    with torch.device("meta"):
        model = TMDEModel(TMDEConfig(hidden_size=1024, num_attention_heads=16, intermediate_size=4096))
    layer = sum(weight.numel() for weight in model.encoder.layer[0].parameters())
    assert len(model.encoder.layer) == 7
    assert model.queries.shape == (32, 1024)
    assert round(layer / 1e6) == 13


def test_the_vector_is_the_first_state_and_padding_leaves_it_as_it_is():
    model = tmde()
    output = model(input_ids=IDS, attention_mask=MASK)
    assert torch.equal(output.last_hidden_state[:, 0], output.pooler_output)
    alone = model(input_ids=IDS[1:, :3])
    torch.testing.assert_close(alone.last_hidden_state, output.last_hidden_state[1:, :3])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model with its tokenizer."""
    folder = tmp_path_factory.mktemp("saved") / "tmde"
    tmde().save_pretrained(folder)
    unigram_tokenizer().save_pretrained(folder)
    return folder


FRESH = """
import json, sys
import torch
from transformers import AutoModel

model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True)
assert "replications" not in sys.modules
print(json.dumps(model(torch.tensor(json.loads(sys.argv[2]))).last_hidden_state[0].tolist()))
"""


def test_a_folder_opens_in_a_fresh_process_that_has_nothing_but_transformers(folder, run_in_a_fresh_process, tmp_path):
    ids = IDS[:1].tolist()
    expected = AutoModel.from_pretrained(folder)(torch.tensor(ids)).last_hidden_state[0]
    found = run_in_a_fresh_process(FRESH, str(folder), json.dumps(ids), folder=tmp_path)
    torch.testing.assert_close(torch.tensor(json.loads(found)), expected)


def test_a_folder_sits_below_an_hmde_that_is_saved_and_opened_again(folder, tmp_path):
    hmde = HMDEForDocumentEmbedding.from_sentence_encoder(str(folder), num_document_attention_heads=4)
    tokenizer = HMDETokenizer.from_sentence_encoder(str(folder))
    vectors = hmde.encode_queries(["The cat sat."], tokenizer)
    states = AutoModel.from_pretrained(folder)(**unigram_tokenizer()(["The cat sat."], return_tensors="pt"))
    expected = states.pooler_output[0].detach().numpy()
    np.testing.assert_allclose(vectors[0], expected / np.linalg.norm(expected), atol=1e-5)
    documents = ["The cat sat. It was warm there!", "Le chat dort."]
    before = hmde.encode_documents(documents, tokenizer)
    hmde.save_pretrained(tmp_path / "hmde")
    again = HMDEForDocumentEmbedding.from_pretrained(tmp_path / "hmde")
    np.testing.assert_allclose(again.encode_documents(documents, tokenizer), before, atol=1e-5)


def test_a_folder_is_a_system_of_the_evaluation_that_reads_whole_documents(folder):
    system = load_system(SystemOptions("first", model=str(folder), pooling="cls", max_length=150))
    document = " ".join(["The cat sat."] * 30)
    (vector,) = system.encode_documents([document], "en")
    ids = unigram_tokenizer()([document], return_tensors="pt")["input_ids"]
    assert 100 < ids.shape[1] < 150
    expected = AutoModel.from_pretrained(folder)(ids).pooler_output[0].detach().numpy()
    np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_hidden_layers": 2}, "num_hidden_layers is 2; the pyramid of queries needs 3"),
        ({"num_queries": 3}, "num_queries is 3; it must be at least 4"),
    ],
)
def test_impossible_sizes_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        tmde(**sizes)
