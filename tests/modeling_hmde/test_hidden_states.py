"""Hidden states, attentions and sentence vectors on request."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from modeling_hmde import HMDETokenizer
from tests.reference_model import (
    DOCUMENTS,
    TOLERANCE,
    MakeModel,
    tokenize,
)

TEXT = "The cat sat on the mat. It was warm there! Did the dog see it?"
PASSAGES = {"sentence_pooling": "mean", "max_sentence_length": 40, "passage_length": 40}


@pytest.mark.parametrize("attn_implementation", ["packed", "sdpa", "eager"])
@pytest.mark.parametrize("document_norm", ["post", "pre"])
def test_hidden_states_are_those_of_each_layer_of_the_document_encoder(
    labse: Path, make_model: MakeModel, document_norm: str, attn_implementation: str
) -> None:
    """Each layer by itself, on each document by itself, has them as its input and output."""
    model = make_model(labse, document_norm=document_norm, document_positions=True, attn_implementation="eager")
    model.set_attn_implementation(attn_implementation)
    encoder = model.hmde.document_encoder
    with torch.no_grad():
        output = model(**tokenize(labse), output_hidden_states=True)
        assert model(**tokenize(labse)).hidden_states is None
        model.set_attn_implementation("eager")
        assert len(output.hidden_states) == 1 + model.config.num_document_layers
        for row, document in enumerate(DOCUMENTS):
            count = 1 + len(document)
            states = torch.cat([encoder.dbos[None], output.sentence_embeddings[row, : count - 1]])
            expected = states + encoder.positions.weight[:count]
            if document_norm == "post":
                expected = encoder.input_norm(expected)
            for layer, actual in zip([None, *encoder.layers], output.hidden_states, strict=True):
                expected = expected if layer is None else layer(expected[None], None)[0][0]
                torch.testing.assert_close(actual[row, :count], expected, **TOLERANCE)
                assert not actual[row, count:].any()
    torch.testing.assert_close(output.hidden_states[-1][:, 1:], output.last_hidden_state, **TOLERANCE)


def test_attentions_are_distributions_over_the_sentences_of_a_document(labse: Path, make_model: MakeModel) -> None:
    model = make_model(labse, attn_implementation="eager")
    with torch.no_grad():
        output = model(**tokenize(labse), output_attentions=True, output_hidden_states=True)
        assert torch.equal(output.pooler_output, model(**tokenize(labse)).pooler_output)
    attention = model.hmde.document_encoder.layers[0].attention
    assert len(output.attentions) == model.config.num_document_layers
    for row, document in enumerate(DOCUMENTS):
        count = 1 + len(document)
        states = output.hidden_states[0][row, :count]
        for head, weights in enumerate(output.attentions[0][row]):
            query, key = (project(states).chunk(4, dim=1)[head] for project in (attention.query, attention.key))
            expected = torch.stack([(key @ vector / 8**0.5).softmax(dim=0) for vector in query])
            torch.testing.assert_close(weights[:count, :count], expected, **TOLERANCE)
            assert not weights[:count, count:].any()


@pytest.mark.parametrize("attn_implementation", ["packed", "sdpa"])
def test_attentions_that_are_not_kept_are_refused(labse: Path, make_model: MakeModel, attn_implementation: str) -> None:
    model = make_model(labse, attn_implementation=attn_implementation)
    with pytest.raises(ValueError, match=r'does not keep its weights.*set_attn_implementation\("eager"\)'):
        model(**tokenize(labse), output_attentions=True)


def test_gradients_reach_the_hidden_states_and_attentions(labse: Path, make_model: MakeModel) -> None:
    output = make_model(labse, attn_implementation="eager")(
        **tokenize(labse), output_hidden_states=True, output_attentions=True
    )
    for states in (*output.hidden_states, *output.attentions):
        states.retain_grad()
    output.pooler_output.square().sum().backward()
    assert all(states.grad.any() for states in (*output.hidden_states, *output.attentions))


def test_the_configuration_may_ask_for_hidden_states(labse: Path, make_model: MakeModel) -> None:
    model = make_model(labse)
    model.config.output_hidden_states = True
    with torch.no_grad():
        assert len(model(**tokenize(labse)).hidden_states) == 3
        assert model(**tokenize(labse), output_hidden_states=False).hidden_states is None


def test_sentence_vectors_are_contextual_or_in_passages_read_alone(
    labse: Path, tokenizer: HMDETokenizer, make_model: MakeModel
) -> None:
    rows = tokenizer([TEXT, "The dog."], return_tensors="pt", padding=True)
    alone = make_model(labse, sentence_pooling="mean")(**rows, output_sentence_vectors=True)
    assert torch.equal(alone.sentence_vectors, alone.last_hidden_state)
    in_passages = make_model(labse, **PASSAGES)(**rows, output_sentence_vectors=True)
    torch.testing.assert_close(in_passages.sentence_vectors, alone.sentence_embeddings, **TOLERANCE)
    assert in_passages.sentence_vectors[1, 1:].abs().sum() == 0, "there is no such sentence"
    assert make_model(labse)(**rows).sentence_vectors is None, "nobody asked"
