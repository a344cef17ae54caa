"""What the model computes, against a reference that loops over documents and sentences and pads nothing."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import gelu
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModel, AutoTokenizer, BertModel, MPNetConfig, PreTrainedModel

from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDETokenizer, attention_hmde, modeling_hmde

MakeModel = Callable[..., HMDEForDocumentEmbedding]
DOCUMENTS = [
    ["The cat sat on the mat.", "It was warm there!", "Did the dog see it?", "кот"],
    ["Le chat dort."],
    ["猫在垫子上睡觉。", "Кот спит на ковре.", "a"],
    ["Der Hund sah die Katze.", "Sie lag in der Sonne."],
]
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
EXACT = {"rtol": 1e-8, "atol": 1e-8}  # of what is computed in float64, where rounding hides no mistake


# --- the reference ---------------------------------------------------------------------------------------------------


def reference_sentence_vector(encoder: PreTrainedModel, ids: list[int], pooling: str) -> Tensor:
    output = encoder(torch.tensor([ids]))
    if pooling == "pooler":
        return output.pooler_output[0]
    states = output.last_hidden_state[0]
    return states[0] if pooling == "cls" else states.mean(dim=0)


def reference_passage_vectors(
    encoder: PreTrainedModel, sentences: list[list[int]], passage_length: int
) -> list[tuple[Tensor, int]]:
    """The vectors of a document's sentences, read together as far as a passage goes, and their numbers of tokens."""
    if not sentences:
        return []
    read = [sentences[0]]
    for sentence in sentences[1:]:
        joined = [*read[:-1], read[-1][:-1], sentence[1:]]  # one start and one end token
        if sum(map(len, joined)) > passage_length:
            break
        read = joined
    states = encoder(torch.tensor([[*itertools.chain(*read)]])).last_hidden_state[0]
    vectors = [(part.mean(dim=0), len(part)) for part in states.split([*map(len, read)])]
    return vectors + reference_passage_vectors(encoder, sentences[len(read) :], passage_length)


def reference_attention(states: list[Tensor], weights: SimpleNamespace, layer: str, num_heads: int) -> list[Tensor]:
    def project(name: str, state: Tensor) -> Tensor:
        return weights[f"{layer}.attention.{name}.weight"] @ state + weights[f"{layer}.attention.{name}.bias"]

    attended = []
    for state in states:
        heads = []
        for head in range(num_heads):
            query = project("query", state).chunk(num_heads)[head]
            keys = [project("key", other).chunk(num_heads)[head] for other in states]
            values = [project("value", other).chunk(num_heads)[head] for other in states]
            exponentials = [torch.exp(query @ key / len(query) ** 0.5) for key in keys]
            heads.append(sum(e * value for e, value in zip(exponentials, values, strict=True)) / sum(exponentials))
        attended.append(project("output", torch.cat(heads)))
    return attended


def reference_document_embedding(
    vectors: list[Tensor], lengths: list[int], weights: dict[str, Tensor], config: object
) -> Tensor:
    """Section 2.1 of the paper, one state at a time; `weights` are the document encoder's, by their names."""

    def linear(name: str, state: Tensor) -> Tensor:
        return weights[f"{name}.weight"] @ state + weights[f"{name}.bias"]

    def norm(name: str, state: Tensor) -> Tensor:
        scaled = (state - state.mean()) / (state.var(correction=0) + config.document_layer_norm_eps).sqrt()
        return weights[f"{name}.weight"] * scaled + weights[f"{name}.bias"]

    post = config.document_norm == "post"
    states = [weights["dbos"], *vectors]
    if config.document_positions:
        states = [state + weights["positions.weight"][place] for place, state in enumerate(states)]
        if post:
            states = [norm("input_norm", state) for state in states]
    for number in range(config.num_document_layers):
        layer = f"layers.{number}"

        def feed_forward(state: Tensor, layer: str = layer) -> Tensor:
            return linear(f"{layer}.feed_forward.output", gelu(linear(f"{layer}.feed_forward.input", state)))

        read = states if post else [norm(f"{layer}.attention_norm", state) for state in states]
        attended = reference_attention(read, weights, layer, config.num_document_attention_heads)
        states = [state + more for state, more in zip(states, attended, strict=True)]
        if post:
            states = [norm(f"{layer}.attention_norm", state) for state in states]
            states = [norm(f"{layer}.feed_forward_norm", state + feed_forward(state)) for state in states]
        else:
            states = [state + feed_forward(norm(f"{layer}.feed_forward_norm", state)) for state in states]
    if config.document_pooling == "dbos":
        return states[0]
    if config.document_pooling == "mean_with_dbos":
        return sum(states) / len(states)
    counts = lengths if config.document_pooling == "token_mean" else [1] * len(lengths)
    mean, residual = (
        sum(count * state for count, state in zip(counts, of, strict=True)) / sum(counts)
        for of in (states[1:], vectors)
    )
    if not config.document_residual:
        return mean
    share = config.document_residual
    return share * residual + (1 - share) * mean * residual.norm() / mean.norm()


def reference(folder: Path, model: HMDEForDocumentEmbedding) -> tuple[Tensor, PreTrainedModel, dict[str, Tensor]]:
    """The embeddings of DOCUMENTS, and the weights they were computed with: the source checkpoint's and copies of
    the document encoder's."""
    encoder = AutoModel.from_pretrained(folder, dtype=model.dtype).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    weights = {
        name: value.detach().clone().requires_grad_() for name, value in model.hmde.document_encoder.named_parameters()
    }
    embeddings = []
    for document in DOCUMENTS:
        ids = [tokenizer(sentence)["input_ids"] for sentence in document]
        lengths = [*map(len, ids)]
        if model.config.passage_length:
            vectors, lengths = zip(*reference_passage_vectors(encoder, ids, model.config.passage_length), strict=True)
        else:
            vectors = [reference_sentence_vector(encoder, tokens, model.config.sentence_pooling) for tokens in ids]
        embeddings.append(reference_document_embedding([*vectors], [*lengths], weights, model.config))
    return torch.stack(embeddings), encoder, weights


def tokenize(folder: Path, documents: Sequence[Sequence[str]] = DOCUMENTS, **options: object) -> dict[str, Tensor]:
    tokenizer = HMDETokenizer.from_sentence_encoder(str(folder))
    return tokenizer(
        ["\n".join(document) for document in documents], return_tensors="pt", **({"padding": True} | options)
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


@pytest.mark.parametrize("document_norm", ["post", "pre"])
@pytest.mark.parametrize("document_pooling", ["mean", "token_mean"])
def test_a_share_of_the_sentence_vectors_goes_into_the_document_embedding(
    document_pooling: str, document_norm: str, labse: Path, make_model: MakeModel
) -> None:
    options = {"document_pooling": document_pooling, "document_norm": document_norm, "document_positions": True}
    model = make_model(labse, dtype=torch.float64, document_residual=0.3, **options)
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
    torch.testing.assert_close(pooled, output.pooler_output, **EXACT)


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


@pytest.mark.parametrize("attn_implementation", [None, "sdpa"])  # packed, and padded
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_sentence_vectors_are_the_hidden_states_of_the_layer_that_is_named(
    encoder_folder: Path, make_model: MakeModel, tmp_path: Path, pooling: str, attn_implementation: str | None
) -> None:
    encoder, tokenizer = AutoModel.from_pretrained(encoder_folder).eval(), AutoTokenizer.from_pretrained(encoder_folder)
    queries = ["the cat", "Кот спит на ковре. Le chat dort."]
    inputs = tokenize(encoder_folder, [[query] for query in queries], as_queries=True)
    for layer in (1, 2):
        model = make_model(
            encoder_folder, sentence_pooling=pooling, sentence_layer=layer, attn_implementation=attn_implementation
        )
        (stack,) = (part for part in model.hmde.sentence_encoder.modules() if isinstance(part, torch.nn.ModuleList))
        assert len(stack) == layer
        model.save_pretrained(tmp_path / str(layer))
        saved = HMDEForDocumentEmbedding.from_pretrained(tmp_path / str(layer))
        assert saved.config.sentence_layer == layer
        with torch.no_grad():
            actual = model.embed_queries(**inputs)
            torch.testing.assert_close(saved.embed_queries(**inputs), actual, **TOLERANCE)
            documents = tokenize(encoder_folder)
            torch.testing.assert_close(saved(**documents)[1], model(**documents)[1], **TOLERANCE)
            for vector, query in zip(actual, queries, strict=True):
                states = encoder(**tokenizer(query, return_tensors="pt"), output_hidden_states=True).hidden_states
                expected = states[layer][0, 0] if pooling == "cls" else states[layer][0].mean(dim=0)
                torch.testing.assert_close(vector, expected, **TOLERANCE)


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
        patch.setattr(modeling_hmde, "MAX_TOKENS_PER_BUCKET", bucket)
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


# --- precision, attention, checkpointing -----------------------------------------------------------------------------

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


def test_eager_attention_equals_sdpa(encoder_folder: Path, make_model: MakeModel) -> None:
    inputs = tokenize(encoder_folder)
    embeddings = {}
    for attention in ("eager", "sdpa"):
        model = make_model(encoder_folder, attn_implementation=attention)
        assert model.config._attn_implementation == attention
        assert model.hmde.sentence_encoder.config._attn_implementation == attention
        with torch.no_grad():
            embeddings[attention] = model(**inputs).pooler_output
    torch.testing.assert_close(embeddings["eager"], embeddings["sdpa"], **TOLERANCE)


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


def test_dropout_acts_in_training_only(labse: Path, make_model: MakeModel) -> None:
    inputs = tokenize(labse)
    model = make_model(labse)
    model.hmde.sentence_encoder.eval()
    with torch.no_grad():
        assert torch.equal(model(**inputs).pooler_output, model(**inputs).pooler_output)
        model.hmde.document_encoder.train()
        assert not torch.equal(model(**inputs).pooler_output, model(**inputs).pooler_output)


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


# --- hidden states and attentions -------------------------------------------------------------------------------------


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


def test_the_sentence_encoders_states_and_attentions_come_on_request(labse: Path, make_model: MakeModel) -> None:
    model = make_model(labse, attn_implementation="eager")
    encoder, tokenizer = (
        AutoModel.from_pretrained(labse, attn_implementation="eager"),
        AutoTokenizer.from_pretrained(labse),
    )
    wanted = {"output_hidden_states": True, "output_attentions": True}
    with torch.no_grad():
        assert model(**tokenize(labse), **wanted).sentence_encoder_hidden_states is None
        output = model(**tokenize(labse), **wanted, output_sentence_encoder=True)
        for index, sentence in enumerate(itertools.chain(*DOCUMENTS)):
            expected = encoder(**tokenizer(sentence, return_tensors="pt"), **wanted)
            count = expected.hidden_states[0].shape[1]
            for actual, states in zip(output.sentence_encoder_hidden_states, expected.hidden_states, strict=True):
                torch.testing.assert_close(actual[index, :count], states[0], **TOLERANCE)
            for actual, weights in zip(output.sentence_encoder_attentions, expected.attentions, strict=True):
                torch.testing.assert_close(actual[index, :, :count, :count], weights[0], **TOLERANCE)


@pytest.mark.parametrize("wanted", [0, -1, [1, -3], [2, 7, -9], (), False])
def test_indices_select_hidden_states(labse: Path, make_model: MakeModel, wanted: object) -> None:
    """As a list of all of them is indexed; an index that there is not selects nothing."""
    model = make_model(labse, attn_implementation="eager")
    with torch.no_grad():
        everything = model(**tokenize(labse), output_hidden_states=True, output_sentence_encoder=True)
        output = model(**tokenize(labse), output_hidden_states=wanted, output_sentence_encoder=True)
    for name in ("hidden_states", "sentence_encoder_hidden_states"):
        if wanted is False:
            assert getattr(output, name) is None
            continue
        expected = everything[name]
        chosen = [
            range(len(expected))[index]
            for index in ([wanted] if isinstance(wanted, int) else wanted)
            if -len(expected) <= index < len(expected)
        ]
        assert [index for index, states in enumerate(output[name]) if states is not None] == sorted(chosen)
        for index in chosen:
            torch.testing.assert_close(output[name][index], expected[index])


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


# --- packed and padded, on processors and GPUs -----------------------------------------------------------------------


def variable_length_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int],
) -> Tensor:
    """What `torch.nn.attention.varlen.varlen_attn` computes on a GPU, with its arguments, a sequence at a time.
    query, key, value: (tokens, heads, head width)."""
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert max_q == max_k == int(cu_seq_q.diff().max())
    attended = []
    for begin, end in itertools.pairwise(cu_seq_q.tolist()):
        places = torch.arange(end - begin)
        distances = (places - places.unsqueeze(1)).abs()
        scores = torch.einsum("qhd,khd->hqk", query[begin:end], key[begin:end]) * scale
        if window_size[0] >= 0:
            scores = scores.masked_fill(distances > window_size[0], -torch.inf)
        attended.append(torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), value[begin:end]))
    return torch.cat(attended)


@pytest.fixture
def gpu_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path that a GPU takes, with a stand-in for its kernel."""
    monkeypatch.setattr(attention_hmde, "has_variable_length_kernel", lambda states: True)
    monkeypatch.setattr(attention_hmde, "varlen_attn", variable_length_attention)


def gradients_of(model: HMDEForDocumentEmbedding, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    embeddings = model(**inputs).pooler_output
    direction = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(0), dtype=embeddings.dtype)
    (embeddings * direction).sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"embeddings": embeddings.detach()} | gradients


def assert_same_gradients(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, **EXACT, msg=name)


@pytest.mark.parametrize("sentence_pooling", ["cls", "mean"])
def test_packed_sentences_and_documents_give_the_embeddings_and_gradients_of_padded_ones(
    encoder_folder: Path, make_model: MakeModel, sentence_pooling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modeling_hmde, "MAX_TOKENS_PER_BUCKET", 30)
    options = {"sentence_pooling": sentence_pooling, "dtype": torch.float64, "document_positions": True}
    inputs = tokenize(encoder_folder)
    packed = make_model(encoder_folder, **options)
    assert packed.config._attn_implementation == packed.hmde.sentence_encoder.config._attn_implementation == "packed"
    padded = make_model(encoder_folder, attn_implementation="sdpa", **options)
    assert_same_gradients(gradients_of(packed, inputs), gradients_of(padded, inputs))


@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "gradient checkpointing"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_path_of_a_gpu_gives_the_embeddings_and_gradients_of_a_processor(
    encoder_folder: Path, make_model: MakeModel, checkpointing: bool, request: pytest.FixtureRequest
) -> None:
    inputs = tokenize(encoder_folder)
    options = {"sentence_pooling": "mean", "dtype": torch.float64}
    expected = gradients_of(make_model(encoder_folder, **options), inputs)
    request.getfixturevalue("gpu_kernel")
    model = make_model(encoder_folder, **options)
    if checkpointing:
        model.gradient_checkpointing_enable()
    assert_same_gradients(gradients_of(model, inputs), expected)


def test_autocast_reaches_the_kernel_of_a_gpu_in_one_dtype(
    encoder_folder: Path, make_model: MakeModel, gpu_kernel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtypes = set()

    def record(*states: Tensor, **kwargs: object) -> Tensor:
        dtypes.add(tuple(tensor.dtype for tensor in states[:3]))
        return variable_length_attention(*states, **kwargs)

    monkeypatch.setattr(attention_hmde, "varlen_attn", record)
    model = make_model(encoder_folder)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        model(**tokenize(encoder_folder))
    assert dtypes == {(torch.bfloat16,) * 3}


def test_the_compiled_sentence_encoder_is_compiled_once_for_batches_of_all_sizes(
    labse: Path, make_model: MakeModel, gpu_kernel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []

    @torch.library.custom_op("hmde_test::varlen", mutates_args=())
    def kernel(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, scale: float) -> Tensor:
        return variable_length_attention(
            query, key, value, bounds, bounds, longest, longest, scale=scale, window_size=(-1, -1)
        )

    kernel.register_fake(lambda query, *_: torch.empty_like(query))
    monkeypatch.setattr(
        attention_hmde,
        "varlen_attn",
        lambda query, key, value, bounds, _, longest, __, scale, window_size: kernel(
            query, key, value, bounds, longest, scale
        ),
    )

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        compiled.append(graph)
        return graph

    model = make_model(labse)
    inputs = [tokenize(labse, DOCUMENTS[first:]) for first in (0, 2, 3)]
    with torch.no_grad():
        expected = [model(**batch).pooler_output for batch in inputs]
        model.hmde.sentence_encoder.compile(backend=backend, dynamic=True, fullgraph=True)
        for batch, embeddings in zip(inputs, expected, strict=True):
            torch.testing.assert_close(model(**batch).pooler_output, embeddings, **TOLERANCE)
    assert len(compiled) == 1


def test_the_embedding_matrix_has_one_gradient_however_many_buckets_there_are(
    labse: Path, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modeling_hmde, "MAX_TOKENS_PER_BUCKET", 1)
    model = make_model(labse)
    calls = []
    model.get_input_embeddings().register_forward_hook(lambda *_: calls.append(1))
    model(**tokenize(labse)).pooler_output.sum().backward()
    assert len(calls) == 1


def test_distributed_data_parallel_finds_a_gradient_for_every_weight(
    encoder_folder: Path, make_model: MakeModel, tmp_path: Path
) -> None:
    inputs = tokenize(encoder_folder)
    expected = gradients_of(make_model(encoder_folder, dtype=torch.float64), inputs)
    model = make_model(encoder_folder, dtype=torch.float64)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        for _ in range(2):  # the second step waits for what the first left without a gradient
            model.zero_grad()
            actual = gradients_of(parallel, inputs)
    finally:
        torch.distributed.destroy_process_group()
    assert_same_gradients({name.removeprefix("module."): gradient for name, gradient in actual.items()}, expected)


def test_a_sentence_encoder_called_by_itself_says_which_attention_it_needs(labse: Path, make_model: MakeModel) -> None:
    sentence_encoder = make_model(labse).hmde.sentence_encoder
    inputs = AutoTokenizer.from_pretrained(labse)(["The cat sat", "The dog"], padding=True, return_tensors="pt")
    with torch.no_grad(), pytest.raises(ValueError, match=r'set_attn_implementation\("sdpa"\)'):
        sentence_encoder(**inputs)
    sentence_encoder.set_attn_implementation("sdpa")
    with torch.no_grad():
        found = sentence_encoder(**inputs).last_hidden_state[0]
        expected = AutoModel.from_pretrained(labse)(**inputs).last_hidden_state[0]
    torch.testing.assert_close(found, expected, **TOLERANCE)


def test_a_sentence_encoder_that_cannot_be_packed_is_padded() -> None:
    config = MPNetConfig(
        vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    torch.manual_seed(0)
    model = HMDEForDocumentEmbedding(
        HMDEConfig(sentence_config=config, start_token_id=2, pad_token_id=1, num_document_attention_heads=4)
    ).eval()
    rows = torch.tensor([[2, 7, 8, 9, 2, 5, 6], [2, 4, 1, 1, 1, 1, 1]])
    with torch.no_grad():
        together = model(rows, (rows != 1).long()).pooler_output
        alone = model(rows[1:, :2]).pooler_output
    torch.testing.assert_close(together[1:], alone, **TOLERANCE)


@pytest.mark.parametrize("attn_implementation", ["packed", "sdpa"])
def test_bfloat16_keeps_the_direction_of_every_embedding(
    attn_implementation: str, labse: Path, tmp_path: Path, make_model: MakeModel
) -> None:
    """Of an encoder with weights of a usual size, whose rounding errors are those of a real one."""
    torch.manual_seed(0)
    encoder = BertModel(AutoConfig.from_pretrained(labse))
    encoder.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(labse).save_pretrained(tmp_path)
    options = {"sentence_pooling": "mean", "document_norm": "pre"}
    exact = HMDEForDocumentEmbedding.from_sentence_encoder(str(tmp_path), num_document_attention_heads=4, **options)
    rounded = HMDEForDocumentEmbedding.from_sentence_encoder(
        str(tmp_path),
        num_document_attention_heads=4,
        dtype=torch.bfloat16,
        attn_implementation=attn_implementation,
        **options,
    )
    with torch.no_grad():
        expected, _, _ = reference(tmp_path, exact)
        actual = rounded(**tokenize(tmp_path)).pooler_output.float()
    assert torch.cosine_similarity(actual, expected).min() >= 0.9995


class LargestResult(TorchDispatchMode):
    """Counts the elements of the largest tensor that is made."""

    elements = 0

    def __torch_dispatch__(
        self, function: object, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().size() // tensor.element_size())
        return result


def test_memory_of_ten_thousand_sentences_grows_with_their_number_and_not_with_its_square(
    labse: Path, make_model: MakeModel
) -> None:
    model = make_model(labse)
    largest = {}
    for num_sentences in (1_024, 10_000):
        ids = torch.tensor([[2, 7, 8, 3] * num_sentences])
        with torch.no_grad(), LargestResult() as result:
            assert model(ids).pooler_output.isfinite().all()
        largest[num_sentences] = result.elements
    assert largest[1_024] == modeling_hmde.MAX_TOKENS_PER_BUCKET * 64, "the feed-forward states of a bucket"
    assert largest[10_000] == 10_001 * 64, "the feed-forward states of the document encoder"
