"""What only a GPU can show; `make gpu` runs it. GPU_TESTS_DEVICE=cpu tries it on a processor.

Half precision is judged by its distance from float64: packed sentences may be no further away than padded ones are.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from torch import Tensor, nn

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer, attention_hmde, sentence_reading_hmde
from tests.pretraining import options, write_corpus
from training.data import kinds
from training.encoder import TwoPathEncoder
from training.loop.cached_gradients import backward_through_chunks, cut_into_chunks

DEVICE = os.environ.get("GPU_TESTS_DEVICE", "cuda")
ON_GPU = DEVICE == "cuda"
pytestmark = pytest.mark.skipif(
    ON_GPU and not torch.cuda.is_available(), reason="no GPU; GPU_TESTS_DEVICE=cpu tries these tests on a processor"
)

MakeModel = Callable[..., HMDEForDocumentEmbedding]
SENTENCES = [
    "The cat sat on the mat.",
    "It was warm there!",
    "Кот спит на ковре.",
    "猫在垫子上睡觉。",
    "Der Hund sah die Katze, denn es war ein langer Tag gewesen, und sie lag in der Sonne.",
]
# An empty document, one of a character, one of a long sentence, and some of up to 45 sentences.
DOCUMENTS = ["", "a", "the cat sat " * 40, *("\n".join(SENTENCES[:kinds] * 9) for kinds in range(1, 6))]
SIZES = {"max_sentence_length": 128, "sentence_pooling": "mean"}


def inputs_of(folder: Path, documents: list[str] = DOCUMENTS) -> dict[str, Tensor]:
    tokenizer = HMDETokenizer.from_sentence_encoder(str(folder))
    return dict(tokenizer(documents, padding=True, return_tensors="pt").to(DEVICE))


def states_of(model: HMDEForDocumentEmbedding, inputs: dict[str, Tensor], autocast: bool = False) -> dict[str, Tensor]:
    """The embeddings, and all gradients as one vector, of a loss that has no direction of its own."""
    model.zero_grad()
    with torch.autocast(DEVICE, torch.bfloat16, enabled=autocast):
        embeddings = model(**inputs).pooler_output
    direction = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(0))
    (embeddings * direction.to(embeddings)).sum().backward()
    return {"embeddings": embeddings.detach().double(), "gradients": all_gradients(model)}


def all_gradients(model: nn.Module) -> Tensor:
    return torch.cat([weight.grad.double().flatten() for weight in model.parameters() if weight.grad is not None])


def distance(found: Tensor, expected: Tensor) -> float:
    assert found.isfinite().all()
    return float((found - expected).norm() / expected.norm())


# --- packed and padded -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("passage_length", [0, 128], ids=["sentences", "passages"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_packed_forward_and_backward_are_as_near_to_float64_as_padded_ones(
    encoder_folder: Path, make_model: MakeModel, dtype: torch.dtype, passage_length: int
) -> None:
    inputs = inputs_of(encoder_folder)

    def states(dtype: torch.dtype, attention: str) -> dict[str, Tensor]:
        changes = {"passage_length": passage_length, "attn_implementation": attention, "dtype": dtype}
        return states_of(make_model(encoder_folder, **SIZES, **changes).to(DEVICE), inputs)

    exact, padded, packed = states(torch.float64, "sdpa"), states(dtype, "sdpa"), states(dtype, "packed")
    for name, expected in exact.items():
        assert distance(packed[name], expected) <= 1.5 * distance(padded[name], expected) + 1e-5, name


@pytest.mark.skipif(not ON_GPU, reason="the kernel is a GPU's")
@pytest.mark.parametrize(("dtype", "layers"), [(torch.bfloat16, 4), (torch.float16, 4), (torch.float32, 0)], ids=str)
def test_half_precision_is_computed_by_the_kernel(
    encoder_folder: Path, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, layers: int
) -> None:
    calls = []
    kernel = attention_hmde.varlen_attn
    monkeypatch.setattr(
        attention_hmde, "varlen_attn", lambda *states, **rest: calls.append(1) or kernel(*states, **rest)
    )
    make_model(encoder_folder, dtype=dtype, **SIZES).to(DEVICE)(**inputs_of(encoder_folder))
    assert len(calls) == layers  # two of each encoder


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_no_document_changes_with_those_beside_it_and_empty_ones_have_vectors(
    encoder_folder: Path, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    model = make_model(encoder_folder, dtype=dtype, **SIZES).to(DEVICE)
    tokenizer = HMDETokenizer.from_sentence_encoder(str(encoder_folder))
    together = model.encode_documents(DOCUMENTS, tokenizer)
    alone = np.concatenate([model.encode_documents([document], tokenizer) for document in DOCUMENTS])
    monkeypatch.setattr(sentence_reading_hmde, "MAX_TOKENS_PER_BUCKET_ON_GPU", 100)
    in_small_buckets = model.encode_documents(DOCUMENTS, tokenizer, max_tokens_per_batch=200)
    least = 1 - (1e-5 if dtype == torch.float32 else 1e-2)
    assert np.isfinite(together).all()
    assert (together * alone).sum(axis=1).min() > least
    assert (together * in_small_buckets).sum(axis=1).min() > least


# --- training --------------------------------------------------------------------------------------------------------


def test_dropout_acts_in_training_and_repeats_with_its_seed(encoder_folder: Path, make_model: MakeModel) -> None:
    model = make_model(encoder_folder, dtype=torch.bfloat16, document_dropout=0.2, **SIZES).to(DEVICE).train()
    inputs = inputs_of(encoder_folder)

    def embeddings(seed: int) -> Tensor:
        torch.manual_seed(seed)
        with torch.no_grad():
            return model(**inputs).pooler_output

    assert embeddings(0).isfinite().all()
    assert torch.equal(embeddings(0), embeddings(0))
    assert not torch.equal(embeddings(0), embeddings(1))


@pytest.mark.skipif(not ON_GPU, reason="on a processor, weights are dropped")
def test_the_kernel_drops_no_attention_weight_and_says_so(
    labse: Path, make_model: MakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_model(labse, dtype=torch.bfloat16, **SIZES).to(DEVICE)
    inputs = inputs_of(labse)
    with torch.no_grad():
        expected = model(**inputs).pooler_output
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5 if name.endswith(("attention.dropout", "attention.self.dropout")) else 0.0
    attention_hmde.logger.warning_once.cache_clear()
    with torch.no_grad(), caplog.at_level("WARNING"):
        assert distance(model.train()(**inputs).pooler_output, expected) < 1e-3
    assert "variable-length attention has no dropout" in caplog.text


@pytest.mark.skipif(not ON_GPU, reason="test_packed_model.py compiles with a stand-in for the kernel")
def test_the_compiled_sentence_encoder_computes_the_same_for_batches_of_all_sizes(
    labse: Path, make_model: MakeModel
) -> None:
    """As a recipe with `compile` has it: float32 weights, in bfloat16 under autocast."""
    exact, plain, compiled = (make_model(labse, **SIZES).to(DEVICE) for _ in range(3))
    compiled.hmde.sentence_encoder.compile(dynamic=True)
    exact.double()
    for first in (0, 3, 5):
        inputs = inputs_of(labse, DOCUMENTS[first:])
        expected = states_of(exact, inputs)
        without, found = (states_of(model, inputs, autocast=True) for model in (plain, compiled))
        for name in expected:
            assert distance(found[name], expected[name]) <= 1.5 * distance(without[name], expected[name]) + 1e-4, name


@pytest.mark.filterwarnings("ignore::FutureWarning")  # the name in every version we support
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradient_checkpointing_gives_the_same_gradients_with_dropout_on(
    encoder_folder: Path, make_model: MakeModel, dtype: torch.dtype
) -> None:
    inputs = inputs_of(encoder_folder)
    found = []
    for checkpointing in (False, True):
        model = make_model(encoder_folder, **SIZES).to(DEVICE).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        torch.manual_seed(0)
        found.append(states_of(model, inputs, autocast=dtype == torch.bfloat16)["gradients"])
    assert distance(found[1], found[0]) < (1e-4 if dtype == torch.float32 else 2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_cached_gradients_are_those_of_one_graph_with_the_same_dropout(
    labse: Path, make_model: MakeModel, dtype: torch.dtype
) -> None:
    model = make_model(labse, dtype=dtype, **SIZES).to(DEVICE).train()
    encoder = TwoPathEncoder(model)
    tokenizer = HMDETokenizer.from_sentence_encoder(str(labse))
    queries = tokenizer(SENTENCES, as_queries=True, padding=True, return_tensors="pt").to(DEVICE)
    chunks = cut_into_chunks({kinds.QUERIES: dict(queries), kinds.DOCUMENTS: inputs_of(labse)}, max_tokens=300)
    assert len(chunks) > 2

    def objective(embeddings: dict[str, Tensor]) -> dict[str, Tensor]:
        """Every document beside every query."""
        documents, queries = (
            nn.functional.normalize(embeddings[name].float()) for name in (kinds.DOCUMENTS, kinds.QUERIES)
        )
        return {"loss": (queries @ documents.T / 0.05).logsumexp(dim=1).mean()}

    torch.manual_seed(7)
    parts = [encoder(chunk) for chunk in chunks]
    whole = {
        name: torch.cat([part[name] for part in parts if name in part]) for name in (kinds.QUERIES, kinds.DOCUMENTS)
    }
    objective(whole)["loss"].backward()
    expected = all_gradients(model)
    model.zero_grad()
    torch.manual_seed(7)
    backward_through_chunks(Accelerator(cpu=not ON_GPU), encoder, chunks, objective)
    assert distance(all_gradients(model), expected) < (1e-4 if dtype == torch.float32 else 3e-2)


# --- runs ------------------------------------------------------------------------------------------------------------

ENVIRONMENTS = {
    "ddp": {},
    "fsdp2": {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "NO_WRAP",
        "FSDP_RESHARD_AFTER_FORWARD": "false",
    },
}


@pytest.fixture(scope="module")
def updates(labse: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tensor]:
    """A function from mixed precision and way to distribute to what eight steps of pretraining change."""
    corpus_folder = write_corpus(tmp_path_factory.mktemp("corpus"))
    start = {f"hmde.sentence_encoder.{name}": weight for name, weight in load_file(labse / "model.safetensors").items()}

    @functools.cache
    def run(mixed_precision: str, distributed: str | None) -> Tensor:
        output = tmp_path_factory.mktemp("run") / "model"
        arguments = options(
            corpus_folder,
            labse,
            output,
            mixed_precision=mixed_precision,
            architecture='{"num_document_attention_heads": 4, "document_dropout": 0.0, "max_sentences": 4}',
            sentence_dropout=0.0,
            losses='{"info_nce": {"hard_negatives": "all"}, "queries": {"weight": 0.5, "hard_negatives": "all"}}',
            max_steps=8,
            max_tokens_per_chunk=100,
            eval_concepts=1,  # which every model finds, so that the last one is kept
        )
        environment = {} if ON_GPU else {"ACCELERATE_USE_CPU": "true"}
        if distributed:
            with socket.socket() as found:
                found.bind(("localhost", 0))
                port = str(found.getsockname()[1])
            environment |= ENVIRONMENTS[distributed] | {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
            environment |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
        done = subprocess.run(
            [sys.executable, "-m", "training.pretrain", *arguments],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        trained = load_file(output / "model.safetensors")
        return torch.cat([(trained[name] - start[name]).flatten() for name in sorted(start) if name in trained])

    return run


@pytest.mark.parametrize("distributed", ["ddp", "fsdp2"])
def test_one_distributed_device_trains_as_one_that_is_not(updates: Callable[..., Tensor], distributed: str) -> None:
    """In bfloat16, with accumulation and chunks."""
    expected = updates("bf16", None)
    assert expected.norm() > 0
    assert torch.cosine_similarity(updates("bf16", distributed), expected, dim=0) > 0.9


@pytest.mark.parametrize("mixed_precision", ["bf16", "fp16"])
def test_mixed_precision_trains_the_way_of_float32(updates: Callable[..., Tensor], mixed_precision: str) -> None:
    if mixed_precision == "fp16" and not ON_GPU:
        pytest.skip("Accelerate has fp16 on GPUs only")
    assert torch.cosine_similarity(updates(mixed_precision, None), updates("no", None), dim=0) > 0.6
