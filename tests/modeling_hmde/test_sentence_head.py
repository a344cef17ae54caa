"""Vectors of sentences from the pass that makes the document's, and vectors that are turned at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDETokenizer
from tests.reference_model import TOLERANCE

TEXT = "The cat sat on the mat. It was warm there! Did the dog see it?"
PASSAGES = {"sentence_pooling": "mean", "max_sentence_length": 40, "passage_length": 40}
MakeModel = Callable[..., HMDEForDocumentEmbedding]


def with_random(weight: torch.Tensor) -> None:
    with torch.no_grad():
        weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)))


def orthogonal(size: int) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(4)))[0]


@pytest.mark.parametrize("attention", ["packed", "sdpa"])
def test_the_head_reads_the_mean_states_of_all_layers_of_the_sentence_in_its_passage(
    labse: Path, tokenizer: HMDETokenizer, make_model: MakeModel, attention: str
) -> None:
    model = make_model(labse, **PASSAGES, sentence_head=True, attn_implementation=attention)
    with_random(model.hmde.sentence_head.weight)
    with_random(model.hmde.sentence_head.bias)
    rows = tokenizer([TEXT], return_tensors="pt")
    with torch.no_grad():
        output = model(**rows, output_sentence_vectors=True)
        # By hand: the sentences are one text, in which only the first start token and the last end token stay.
        ids, sentence_ids = rows.input_ids[0], rows.sentence_ids[0]
        parts = [ids[sentence_ids == sentence] for sentence in range(3)]
        parts = [part[(index > 0) : len(part) - (index < 2)] for index, part in enumerate(parts)]
        states = AutoModel.from_pretrained(labse)(torch.cat(parts)[None], output_hidden_states=True).hidden_states
        means = [
            torch.cat([layer[0].split([*map(len, parts)])[sentence].mean(dim=0) for layer in states])
            for sentence in range(3)
        ]
        head = model.hmde.sentence_head
        expected = torch.stack([head.weight @ mean + head.bias for mean in means])
    torch.testing.assert_close(output.sentence_vectors[0], expected, rtol=1e-4, atol=1e-4)


def test_a_new_head_gives_the_mean_states_of_the_last_layer(
    labse: Path, tokenizer: HMDETokenizer, make_model: MakeModel
) -> None:
    model = make_model(labse, **PASSAGES, sentence_head=True)
    output = model(**tokenizer([TEXT], return_tensors="pt"), output_sentence_vectors=True)
    torch.testing.assert_close(output.sentence_vectors, output.sentence_embeddings, **TOLERANCE)


def test_a_new_head_on_an_encoder_without_layers_gives_the_means_of_its_tokens(
    labse: Path, tokenizer: HMDETokenizer
) -> None:
    config = HMDEConfig(
        sentence_config=AutoConfig.from_pretrained(labse, num_hidden_layers=0),
        sentence_pooling="mean",
        sentence_head=True,
        num_document_attention_heads=4,
        start_token_id=tokenizer.cls_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = HMDEForDocumentEmbedding(config).eval()
    output = model(**tokenizer([TEXT], return_tensors="pt"), output_sentence_vectors=True)
    torch.testing.assert_close(output.sentence_vectors, output.sentence_embeddings, **TOLERANCE)
    assert not torch.allclose(output.sentence_vectors, output.last_hidden_state, **TOLERANCE)


def test_without_a_head_sentence_vectors_are_contextual_or_in_passages_read_alone(
    labse: Path, tokenizer: HMDETokenizer, make_model: MakeModel
) -> None:
    rows = tokenizer([TEXT, "The dog."], return_tensors="pt", padding=True)
    alone = make_model(labse, sentence_pooling="mean")(**rows, output_sentence_vectors=True)
    assert torch.equal(alone.sentence_vectors, alone.last_hidden_state)
    in_passages = make_model(labse, **PASSAGES)(**rows, output_sentence_vectors=True)
    torch.testing.assert_close(in_passages.sentence_vectors, alone.sentence_embeddings, **TOLERANCE)
    assert in_passages.sentence_vectors[1, 1:].abs().sum() == 0, "there is no such sentence"
    assert make_model(labse)(**rows).sentence_vectors is None, "nobody asked"


def test_a_head_changes_neither_documents_nor_queries(
    labse: Path, tokenizer: HMDETokenizer, make_model: MakeModel
) -> None:
    with_head, without = make_model(labse, **PASSAGES, sentence_head=True), make_model(labse, **PASSAGES)
    with_random(with_head.hmde.sentence_head.weight)
    np.testing.assert_array_equal(
        with_head.encode_documents([TEXT], tokenizer, sentences=True)[0], without.encode_documents([TEXT], tokenizer)
    )
    np.testing.assert_array_equal(
        with_head.encode_queries(["The cat"], tokenizer), without.encode_queries(["The cat"], tokenizer)
    )


@pytest.mark.parametrize("query_path", ["sentence_encoder", "document_encoder"])
@pytest.mark.parametrize("head", [False, True])
def test_a_rotation_turns_documents_sentences_and_queries_alike(
    labse: Path, tokenizer: HMDETokenizer, make_model: MakeModel, query_path: str, head: bool
) -> None:
    options = PASSAGES | {"query_path": query_path, "sentence_head": head}
    plain, turned = make_model(labse, **options), make_model(labse, **options, rotation=True)
    matrix = orthogonal(plain.config.hidden_size)
    with torch.no_grad():
        turned.hmde.rotation.weight.copy_(matrix)

    def vectors(model: HMDEForDocumentEmbedding) -> list[np.ndarray]:
        documents, sentences = model.encode_documents([TEXT], tokenizer, sentences=True)
        prepared = model.prepare_sentences([TEXT], tokenizer, scoring="maximum")
        queries = model.encode_queries(["The cat"], tokenizer)
        return [documents, queries, sentences[0].vectors.numpy(), prepared[0].vectors.numpy()]

    for before, after in zip(vectors(plain), vectors(turned)):
        np.testing.assert_allclose(after, before @ matrix.numpy().T, atol=1e-5)
    (one,), (other,) = (model.explain("The cat", [TEXT], tokenizer) for model in (plain, turned))
    assert other.score == pytest.approx(one.score, abs=1e-5)
    expected = {(begin, end): score for begin, end, score in one.sentences}
    assert {(begin, end): score for begin, end, score in other.sentences} == pytest.approx(expected, abs=1e-5)


def test_head_and_rotation_are_saved_with_the_model(
    labse: Path, tokenizer: HMDETokenizer, make_model: MakeModel, tmp_path: Path
) -> None:
    model = make_model(labse, **PASSAGES, sentence_head=True, rotation=True)
    with_random(model.hmde.sentence_head.weight)
    with torch.no_grad():
        model.hmde.rotation.weight.copy_(orthogonal(model.config.hidden_size))
    model.save_pretrained(tmp_path / "model")
    loaded = HMDEForDocumentEmbedding.from_pretrained(tmp_path / "model")
    weights = loaded.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in model.state_dict().items())
    for one, other in zip(
        model.encode_documents([TEXT], tokenizer, sentences=True),
        loaded.encode_documents([TEXT], tokenizer, sentences=True),
    ):
        found, expected = (given if isinstance(given, np.ndarray) else given[0].vectors for given in (one, other))
        np.testing.assert_allclose(found, expected, atol=1e-6)  # where weights lie in memory changes the last digit


def test_sentence_vectors_need_rows_of_tokens(labse: Path, tokenizer: HMDETokenizer, make_model: MakeModel) -> None:
    model = make_model(labse, **PASSAGES, sentence_head=True)
    inputs = {name: torch.tensor(rows) for name, rows in tokenizer.by_passage(tokenizer([TEXT]), model.config).items()}
    with pytest.raises(ValueError, match="sentence_lengths came with output_sentence_vectors"):
        model(**inputs, output_sentence_vectors=True)
