"""What the model computes, against a reference that loops over documents and sentences and pads nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer

from modeling_hmde import HMDEForDocumentEmbedding, sentence_reading_hmde
from tests.reference_model import (
    DOCUMENTS,
    EXACT,
    TOLERANCE,
    MakeModel,
    reference,
    reference_sentence_vector,
    tokenize,
)

# --- equal to the reference ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document_positions", [False, True], ids=["", "positions"])
@pytest.mark.parametrize("document_norm", ["post", "pre"])
@pytest.mark.parametrize("document_pooling", ["mean", "token_mean", "mean_with_dbos", "dbos"])
@pytest.mark.parametrize("sentence_pooling", ["cls", "mean", "pooler"])
@pytest.mark.parametrize("shape", ["labse", "xlmr"])
def test_forward_equals_the_reference(
    shape: str,
    sentence_pooling: str,
    document_pooling: str,
    document_norm: str,
    document_positions: bool,
    request: pytest.FixtureRequest,
    make_model: MakeModel,
) -> None:
    folder = request.getfixturevalue(shape)
    model = make_model(
        folder,
        dtype=torch.float64,
        sentence_pooling=sentence_pooling,
        document_pooling=document_pooling,
        document_norm=document_norm,
        document_positions=document_positions,
    )
    with torch.no_grad():
        expected, _, _ = reference(folder, model)
        actual = model(**tokenize(folder)).pooler_output
    assert expected.std(dim=0).mean() > 0.05, "documents too alike for the comparison to mean anything"
    torch.testing.assert_close(actual, expected, **EXACT)


@pytest.mark.parametrize(
    ("document_pooling", "expected"),
    [
        ("mean", [[0, 1 / 2, 1 / 2, 0], [0, 1, 0, 0]]),
        ("token_mean", [[0, 3 / 4, 1 / 4, 0], [0, 1, 0, 0]]),
        ("mean_with_dbos", [[1 / 3, 1 / 3, 1 / 3, 0], [1 / 2, 1 / 2, 0, 0]]),
        ("dbos", [[1, 0, 0, 0], [1, 0, 0, 0]]),
    ],
)
def test_each_sentence_has_its_share_in_the_document_embedding_also_one_of_a_single_token(
    document_pooling: str, expected: list[list[float]], labse: Path, make_model: MakeModel
) -> None:
    encoder = make_model(labse, document_pooling=document_pooling).hmde.document_encoder
    weights = encoder.pooling_weights(torch.tensor([[6, 2, 0], [2, 0, 0]]))
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize("document_norm", ["post", "pre"])
@pytest.mark.parametrize("document_pooling", ["mean", "token_mean"])
def test_shares_of_the_sentence_vectors_and_of_the_first_sentence_go_into_the_document_embedding(
    document_pooling: str, document_norm: str, labse: Path, make_model: MakeModel
) -> None:
    options = {"document_pooling": document_pooling, "document_norm": document_norm, "document_positions": True}
    model = make_model(labse, dtype=torch.float64, document_residual=0.3, document_first_sentence=0.2, **options)
    expected, encoder, weights = reference(labse, model)
    direction = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (expected * direction).sum().backward()
    output = model(**tokenize(labse))
    (output.pooler_output * direction).sum().backward()
    torch.testing.assert_close(output.pooler_output, expected, **EXACT)
    for name, parameter in model.hmde.sentence_encoder.named_parameters():
        torch.testing.assert_close(parameter.grad, encoder.get_parameter(name).grad, **EXACT, msg=name)
    for name, parameter in model.hmde.document_encoder.named_parameters():
        torch.testing.assert_close(parameter.grad, weights[name].grad, **EXACT, msg=name)
    counts = output.sentence_lengths if document_pooling == "token_mean" else output.sentence_lengths > 0
    pooled = (output.last_hidden_state * counts.unsqueeze(-1)).sum(dim=1) / counts.sum(dim=1, keepdim=True)
    torch.testing.assert_close(0.8 * pooled + 0.2 * output.last_hidden_state[:, 0], output.pooler_output, **EXACT)


@pytest.mark.parametrize("sentence_pooling", ["cls", "mean"])
def test_forward_equals_the_reference_on_an_encoder_with_rotary_positions(
    modernbert: Path, make_model: MakeModel, sentence_pooling: str
) -> None:
    model = make_model(modernbert, dtype=torch.float64, sentence_pooling=sentence_pooling)
    with torch.no_grad():
        expected, _, _ = reference(modernbert, model)
        actual = model(**tokenize(modernbert)).pooler_output
    torch.testing.assert_close(actual, expected, **EXACT)


@pytest.mark.parametrize("attn_implementation", ["packed", "sdpa"])
@pytest.mark.parametrize("passage_length", [40, 60])
@pytest.mark.parametrize("document_pooling", ["mean", "token_mean"])
@pytest.mark.parametrize("shape", ["labse", "xlmr", "modernbert"])
def test_sentences_that_are_read_together_equal_the_reference(
    shape: str,
    document_pooling: str,
    passage_length: int,
    attn_implementation: str,
    request: pytest.FixtureRequest,
    make_model: MakeModel,
) -> None:
    folder = request.getfixturevalue(shape)
    options = {
        "dtype": torch.float64,
        "sentence_pooling": "mean",
        "document_pooling": document_pooling,
        "attn_implementation": attn_implementation,
    }
    model = make_model(folder, max_sentence_length=40, passage_length=passage_length, **options)
    alone = make_model(folder, max_sentence_length=40, **options)
    expected, encoder, _ = reference(folder, model)
    direction = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (expected * direction).sum().backward()
    actual = model(**tokenize(folder)).pooler_output
    (actual * direction).sum().backward()
    torch.testing.assert_close(actual, expected, **EXACT)
    for name, parameter in model.hmde.sentence_encoder.named_parameters():
        torch.testing.assert_close(parameter.grad, encoder.get_parameter(name).grad, **EXACT, msg=name)
    with torch.no_grad():
        assert (alone(**tokenize(folder)).pooler_output - actual).abs().max() > 1e-3, "the passage changes nothing"


@pytest.mark.parametrize("document_norm", ["post", "pre"])
@pytest.mark.parametrize(("shape", "sentence_pooling"), [("labse", "pooler"), ("labse", "cls"), ("xlmr", "mean")])
def test_gradients_reach_both_encoders_and_equal_the_references(
    shape: str, sentence_pooling: str, document_norm: str, request: pytest.FixtureRequest, make_model: MakeModel
) -> None:
    folder = request.getfixturevalue(shape)
    model = make_model(
        folder,
        dtype=torch.float64,
        sentence_pooling=sentence_pooling,
        document_norm=document_norm,
        document_positions=True,
        document_pooling="mean_with_dbos",
    )
    expected, encoder, weights = reference(folder, model)
    direction = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (expected * direction).sum().backward()
    (model(**tokenize(folder)).pooler_output * direction).sum().backward()

    for name, parameter in model.hmde.sentence_encoder.named_parameters():
        torch.testing.assert_close(parameter.grad, encoder.get_parameter(name).grad, **EXACT, msg=name)
    for name, parameter in model.hmde.document_encoder.named_parameters():
        torch.testing.assert_close(parameter.grad, weights[name].grad, **EXACT, msg=name)
        if "key.bias" not in name:  # it adds the same to every score of a query, which changes no weight
            assert parameter.grad.abs().max() > 1e-3, name
    assert model.hmde.get_input_embeddings().weight.grad.abs().max() > 1e-3


def test_outputs_are_the_sentences_and_documents_they_say(labse: Path, make_model: MakeModel) -> None:
    model = make_model(labse)
    encoder, tokenizer = AutoModel.from_pretrained(labse), AutoTokenizer.from_pretrained(labse)
    with torch.no_grad():
        output = model(**tokenize(labse))
        lengths = [[len(tokenizer(sentence)["input_ids"]) for sentence in document] for document in DOCUMENTS]
        assert output.sentence_lengths.tolist() == [row + [0] * (4 - len(row)) for row in lengths]
        for row, document in enumerate(DOCUMENTS):
            for place, sentence in enumerate(document):
                expected = reference_sentence_vector(encoder, tokenizer(sentence)["input_ids"], "cls")
                torch.testing.assert_close(output.sentence_embeddings[row, place], expected, **TOLERANCE)
            mean = output.last_hidden_state[row, : len(document)].mean(dim=0)
            torch.testing.assert_close(output.pooler_output[row], mean, **TOLERANCE)
        for states in (output.sentence_embeddings, output.last_hidden_state):
            assert not states[output.sentence_lengths == 0].any()
            assert states[output.sentence_lengths > 0].any(dim=-1).all()


@pytest.mark.parametrize("document_positions", [False, True])
def test_an_untrained_identity_start_embeds_a_document_as_the_mean_of_its_sentences(
    encoder_folder: Path, document_positions: bool
) -> None:
    model = HMDEForDocumentEmbedding.from_sentence_encoder(
        str(encoder_folder),
        document_norm="pre",
        document_positions=document_positions,
        num_document_attention_heads=4,
    )
    encoder, tokenizer = AutoModel.from_pretrained(encoder_folder).eval(), AutoTokenizer.from_pretrained(encoder_folder)
    with torch.no_grad():
        actual = model(**tokenize(encoder_folder)).pooler_output
        for embedding, document in zip(actual, DOCUMENTS, strict=True):
            vectors = [
                reference_sentence_vector(encoder, tokenizer(sentence)["input_ids"], "cls") for sentence in document
            ]
            torch.testing.assert_close(embedding, torch.stack(vectors).mean(dim=0), **TOLERANCE)


def test_a_query_is_embedded_by_the_sentence_encoder_alone(encoder_folder: Path, make_model: MakeModel) -> None:
    model = make_model(encoder_folder)
    queries = ["the cat", "Кот спит на ковре. Le chat dort."]
    encoder, tokenizer = AutoModel.from_pretrained(encoder_folder).eval(), AutoTokenizer.from_pretrained(encoder_folder)
    with torch.no_grad():
        actual = model.embed_queries(**tokenize(encoder_folder, [[query] for query in queries], as_queries=True))
        for vector, query in zip(actual, queries, strict=True):
            expected = reference_sentence_vector(encoder, tokenizer(query)["input_ids"], "cls")
            torch.testing.assert_close(vector, expected, **TOLERANCE)


def test_a_model_of_0_2_0_that_was_cut_above_a_layer_opens(labse: Path, make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model(labse, sentence_pooling="mean")
    del next(part for part in model.hmde.sentence_encoder.modules() if isinstance(part, torch.nn.ModuleList))[1:]
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"sentence_layer": 1}))
    opened, inputs = HMDEForDocumentEmbedding.from_pretrained(tmp_path), tokenize(labse)
    with torch.no_grad():
        assert torch.equal(opened(**inputs).pooler_output, model(**inputs).pooler_output)


# --- no document changes with its batch ------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["labse", "xlmr", "modernbert"])
def embedded_alone(request: pytest.FixtureRequest, make_model: MakeModel) -> SimpleNamespace:
    """A model of each kind with everything on, and the embedding that it gives to each document by itself."""
    folder = request.getfixturevalue(request.param)
    options = {"sentence_pooling": "mean", "document_positions": True, "document_pooling": "mean_with_dbos"}
    model = make_model(folder, max_sentence_length=40, passage_length=40, **options)
    with torch.no_grad():
        alone = torch.cat([model(**tokenize(folder, [document])).pooler_output for document in DOCUMENTS])
    return SimpleNamespace(folder=folder, model=model, alone=alone)


@settings(max_examples=30)
@given(
    batch=st.lists(st.sampled_from(range(len(DOCUMENTS))), min_size=1, max_size=6),
    padding_side=st.sampled_from(["left", "right"]),
    multiple=st.sampled_from([None, 8, 128]),
    bucket=st.sampled_from([1, 30, 16_384]),
    with_mask=st.booleans(),
)
def test_no_document_changes_with_its_batch_its_padding_or_the_buckets(
    embedded_alone: SimpleNamespace,
    batch: list[int],
    padding_side: str,
    multiple: int | None,
    bucket: int,
    with_mask: bool,
) -> None:
    documents = [DOCUMENTS[place] for place in batch]
    inputs = tokenize(embedded_alone.folder, documents, padding_side=padding_side, pad_to_multiple_of=multiple)
    if not with_mask:
        del inputs["attention_mask"]
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(sentence_reading_hmde, "MAX_TOKENS_PER_BUCKET", bucket)
        actual = embedded_alone.model(**inputs).pooler_output
    torch.testing.assert_close(actual, embedded_alone.alone[batch], **TOLERANCE)


def test_what_stands_in_the_padding_is_never_read(embedded_alone: SimpleNamespace) -> None:
    inputs = tokenize(embedded_alone.folder)
    inputs["input_ids"][inputs["attention_mask"] == 0] = int(inputs["input_ids"][0, 0])  # start tokens
    with torch.no_grad():
        torch.testing.assert_close(embedded_alone.model(**inputs).pooler_output, embedded_alone.alone, **TOLERANCE)


def test_the_order_of_sentences_counts_with_positions_only(labse: Path, make_model: MakeModel) -> None:
    for document_positions in (False, True):
        model = make_model(labse, document_positions=document_positions)
        with torch.no_grad():
            there, back = model(**tokenize(labse, [DOCUMENTS[0], DOCUMENTS[0][::-1]])).pooler_output
        assert torch.allclose(there, back, **TOLERANCE) is not document_positions
