"""Packed and padded batches give the same embeddings and gradients, on a CPU and on the path of a GPU."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModel, AutoTokenizer, BertModel

from modeling_hmde import HMDEForDocumentEmbedding, attention_hmde, sentence_reading_hmde
from tests.encoder_families import FAMILIES, save_family
from tests.reference_model import (
    DOCUMENTS,
    EXACT,
    TOLERANCE,
    MakeModel,
    reference,
    tokenize,
)


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
        distances = places.unsqueeze(1) - places  # from a token back to another
        scores = torch.einsum("qhd,khd->hqk", query[begin:end], key[begin:end]) * scale
        for reach, distance in zip(window_size, (distances, -distances), strict=True):
            if reach >= 0:
                scores = scores.masked_fill(distance > reach, -torch.inf)
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
    monkeypatch.setattr(sentence_reading_hmde, "MAX_TOKENS_PER_BUCKET", 30)
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


@pytest.mark.parametrize("name", ["harrier-270m", "embeddinggemma", "qwen3-embedding", "qwen2-sliding", "gte-qwen2"])
def test_the_path_of_a_gpu_keeps_causal_and_sliding_attention(
    name: str, make_model: MakeModel, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = save_family(FAMILIES[name], tmp_path)
    inputs = tokenize(folder)
    expected = gradients_of(make_model(folder, attn_implementation="sdpa", dtype=torch.float64), inputs)
    request.getfixturevalue("gpu_kernel")
    actual = gradients_of(make_model(folder, dtype=torch.float64), inputs)
    for part, gradient in expected.items():  # RMSNorm rounds to float32
        largest = float(gradient.abs().max())
        torch.testing.assert_close(actual[part], gradient, rtol=0, atol=1e-5 * largest + 1e-9, msg=part)


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


@pytest.mark.slow
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
    monkeypatch.setattr(sentence_reading_hmde, "MAX_TOKENS_PER_BUCKET", 1)
    model = make_model(labse)
    calls, embed = [], model.get_input_embeddings()
    lookup = embed.forward
    monkeypatch.setattr(embed, "forward", lambda ids: calls.append(1) or lookup(ids))
    model(**tokenize(labse)).pooler_output.sum().backward()
    assert len(calls) == 1


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


@pytest.mark.parametrize("attn_implementation", ["packed", "sdpa"])
def test_bfloat16_keeps_the_direction_of_every_embedding(
    attn_implementation: str, labse: Path, tmp_path: Path, make_model: MakeModel
) -> None:
    """The weights of the encoder have a usual size, so that rounding errors are those of a real one."""
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


@pytest.mark.slow
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
    assert largest[1_024] == sentence_reading_hmde.MAX_TOKENS_PER_BUCKET * 64, "the feed-forward states of a bucket"
    assert largest[10_000] == 10_001 * 64, "the feed-forward states of the document encoder"
