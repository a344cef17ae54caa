"""Half precision, choice of attention, gradient checkpointing and dropout."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from modeling_hmde import HMDETokenizer
from tests.reference_model import (
    DOCUMENTS,
    TOLERANCE,
    MakeModel,
    tokenize,
)

WORDS = " ".join(" ".join(document) for document in DOCUMENTS).split()
THIRTY_TWO_SENTENCES = [" ".join(random.Random(seed).choices(WORDS, k=1 + seed % 7)) for seed in range(32)]


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_one_sentence_beside_thirty_two_is_finite_in_half_precision(
    encoder_folder: Path, make_model: MakeModel, dtype: torch.dtype, attn_implementation: str
) -> None:
    inputs = tokenize(encoder_folder, [["猫"], THIRTY_TWO_SENTENCES])
    options = {"document_positions": True, "sentence_pooling": "mean"}
    model = make_model(encoder_folder, dtype=dtype, attn_implementation=attn_implementation, **options)
    with torch.no_grad():
        output = model(**inputs)
        exact = model.float()(**inputs)
    for states, expected in zip(output.to_tuple()[:3], exact.to_tuple()[:3], strict=True):
        assert states.dtype == dtype
        assert states.isfinite().all()
        assert torch.cosine_similarity(states.float().flatten(), expected.flatten(), dim=0) > 0.98


def test_autocast_trains_both_encoders_in_bfloat16(labse: Path, make_model: MakeModel) -> None:
    model = make_model(labse)
    inputs = tokenize(labse)
    with torch.autocast("cpu", torch.bfloat16):
        embeddings = model(**inputs).pooler_output
    embeddings.float().sum().backward()
    assert torch.cosine_similarity(embeddings.flatten(), model(**inputs).pooler_output.flatten(), dim=0) > 0.99
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_attention_can_be_switched_on_a_loaded_model(labse: Path, make_model: MakeModel) -> None:
    model = make_model(labse, attn_implementation="sdpa")
    model.set_attn_implementation("eager")
    assert model.hmde.document_encoder.config._attn_implementation == "eager"
    assert model.hmde.document_encoder.layers[0].attention.config._attn_implementation == "eager"
    assert model.hmde.sentence_encoder.config._attn_implementation == "eager"


@pytest.mark.filterwarnings("ignore::FutureWarning")  # the name in every version we support
@pytest.mark.parametrize("frozen", [False, True], ids=["", "sentence encoder frozen"])
def test_gradient_checkpointing_gives_the_same_gradients_with_dropout_on(
    encoder_folder: Path, make_model: MakeModel, frozen: bool
) -> None:
    inputs = tokenize(encoder_folder)
    gradients, calls = [], []
    for checkpointing in (False, True):
        model = make_model(encoder_folder).train()
        model.hmde.sentence_encoder.requires_grad_(not frozen)
        if checkpointing:
            model.gradient_checkpointing_enable()
        num_calls = 0

        def count(*_: object) -> None:
            nonlocal num_calls
            num_calls += 1

        for layer in (model.hmde.document_encoder.layers[0], get_layers(model.hmde.sentence_encoder)[0]):
            first = next(module for module in layer.modules() if isinstance(module, torch.nn.Linear))
            first.register_forward_pre_hook(count)
        torch.manual_seed(0)
        model(**inputs).pooler_output.square().sum().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
        calls.append(num_calls)
    assert calls == [2, 4], "the layers of both encoders are computed again in the backward pass"
    assert not (frozen and any(gradients[0][name] is not None for name in gradients[0] if "sentence_encoder" in name))
    for name, gradient in gradients[0].items():
        assert (gradient is None) == (gradients[1][name] is None)
        if gradient is not None:
            torch.testing.assert_close(gradients[1][name], gradient, **TOLERANCE)


def get_layers(encoder: PreTrainedModel) -> torch.nn.ModuleList:
    return encoder.encoder.layer if hasattr(encoder, "encoder") else encoder.layers


@pytest.mark.parametrize("attn_implementation", ["packed", "sdpa", "eager"])
def test_all_dropout_of_the_document_encoder_is_that_of_its_dropout_modules(
    labse: Path, make_model: MakeModel, attn_implementation: str
) -> None:
    inputs = tokenize(labse)
    model = make_model(labse, document_dropout=0.5, attn_implementation=attn_implementation)
    with torch.no_grad():
        expected = model(**inputs).pooler_output
        model.train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        torch.testing.assert_close(model(**inputs).pooler_output, expected, **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("document_norm", ["post", "pre"])
@pytest.mark.parametrize("sublayer", ["attention", "feed_forward"])
def test_what_each_sublayer_adds_loses_some_values_in_training(
    labse: Path, make_model: MakeModel, document_norm: str, sublayer: str
) -> None:
    """The other sublayer adds nothing here, so that the effect is this one's."""
    model = make_model(labse, document_norm=document_norm, num_document_layers=1, document_dropout=0.5)
    (layer,) = model.hmde.document_encoder.layers
    other = layer.feed_forward if sublayer == "attention" else layer.attention
    torch.nn.init.zeros_(other.output.weight)
    torch.nn.init.zeros_(other.output.bias)
    inputs = tokenize(labse)
    expected = model(**inputs).pooler_output
    layer.dropout.train()
    assert not torch.allclose(model(**inputs).pooler_output, expected, **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("attn_implementation", ["packed", "sdpa", "eager"])
def test_each_dropout_of_the_document_encoder_acts_in_training_only(
    labse: Path, make_model: MakeModel, attn_implementation: str
) -> None:
    """That on the input, too, where there are positions, and norms follow sums, as in BERT's embeddings."""
    options = {"document_positions": True, "document_norm": "post", "document_dropout": 0.5}
    model = make_model(labse, sentence_vector_dropout=0.25, attn_implementation=attn_implementation, **options)
    inputs = tokenize(labse)
    expected = model(**inputs).pooler_output
    dropouts = [
        (owner, child)
        for owner in model.hmde.document_encoder.modules()
        for child in owner.children()
        if isinstance(child, torch.nn.Dropout)
    ]
    assert len(dropouts) == 2 + 2 * model.config.num_document_layers
    for owner, dropout in dropouts:
        owner.training = dropout.training = True  # eager attention of transformers asks its owner
        assert not torch.allclose(model(**inputs).pooler_output, expected, **TOLERANCE)
        owner.training = dropout.training = False
        assert torch.equal(model(**inputs).pooler_output, expected)


@torch.no_grad()
@pytest.mark.parametrize("document_pooling", ["mean", "token_mean"])
def test_the_mean_of_the_sentences_of_a_model_in_half_precision_is_taken_in_float32(
    labse: Path, make_model: MakeModel, document_pooling: str
) -> None:
    options = {"sentence_pooling": "mean", "document_pooling": document_pooling}
    model = make_model(labse, dtype=torch.bfloat16, **options)
    output = model(**tokenize(labse, [THIRTY_TWO_SENTENCES]))
    weights = output.sentence_lengths if document_pooling == "token_mean" else output.sentence_lengths > 0
    weights = weights.float().unsqueeze(-1)
    expected = (weights * output.last_hidden_state.float()).sum(dim=1) / weights.sum(dim=1)
    # Half of them differ where the products are rounded to bfloat16 before they are added.
    assert (output.pooler_output == expected.bfloat16()).float().mean() > 0.9


def test_sentences_of_a_model_in_half_precision_are_described_in_float32(
    labse: Path, make_model: MakeModel, tokenizer: HMDETokenizer
) -> None:
    model = make_model(labse, dtype=torch.bfloat16)
    _, (described,) = model.encode_documents([THIRTY_TWO_SENTENCES[0]], tokenizer, sentences=True, return_tensors="pt")
    assert described.vectors.dtype == torch.float32
    (explanation,) = model.explain("the cat", ["The cat sat. It was warm."], tokenizer)
    query, sentence = (
        torch.nn.functional.normalize(vectors.float()[0], dim=0)
        for vectors in (
            model.encode_queries(["the cat"], tokenizer, return_tensors="pt"),
            model.prepare_sentences(["The cat sat. It was warm."], tokenizer)[0].vectors,
        )
    )
    scores = {span.begin: span.score for span in explanation.sentences}
    assert scores[0] == pytest.approx(float(query @ sentence), abs=2**-7)


@torch.no_grad()
def test_on_request_sentence_vectors_lose_some_values_before_the_document_encoder(
    labse: Path, make_model: MakeModel
) -> None:
    options = {"document_dropout": 0.0, "sentence_vector_dropout": 0.25, "attn_implementation": "sdpa"}
    model = make_model(labse, **options).train()
    model.hmde.sentence_encoder.eval()
    read = []
    model.hmde.document_encoder.layers[0].register_forward_pre_hook(lambda _, arguments: read.append(arguments[0]))
    output = model(**tokenize(labse))
    ratios = read[0][:, 1:][output.sentence_lengths > 0] / output.sentence_embeddings[output.sentence_lengths > 0]
    dropped = ratios == 0
    torch.testing.assert_close(ratios[~dropped], torch.full_like(ratios[~dropped], 1 / 0.75))
    assert float(dropped.float().mean()) == pytest.approx(0.25, abs=0.1)
    assert torch.equal(read[0][0, 0], model.hmde.document_encoder.dbos)
    model.eval()(**tokenize(labse))
    assert torch.equal(read[1][:, 1:], output.sentence_embeddings)
