"""HMDE takes any text encoder that sentence-transformers loads, and gives its vectors: a table of families and checks.

`docs/encoders.md` has the table; this runs it: pytest tests/modeling_hmde/test_encoder_families.py -v
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.encoders_hmde import ENCODER_FAMILIES
from tests.encoder_families import FAMILIES, SIZE, Family, save_family
from tests.reference_model import reference_document_embedding
from tests.tiny_encoders import randomise

SENTENCES = ["The cat sat on the mat, and it was warm there for the dog.", "Did the dog see it?", "Le chat dort."]
TEXTS = [*SENTENCES, "Кот спит на ковре", "猫 sleeps (a, b)", "a"]
DOCUMENTS = ["\n".join(SENTENCES), "Кот спит на ковре", "\n".join(reversed(SENTENCES * 2))]
SIZES = {"num_document_attention_heads": 4, "document_intermediate_size": 64}
CLOSE = {"rtol": 0, "atol": 1e-5}

# One of each kind of tokenizer, attention and padding side; the others prove the same again.
FAST = ("labse", "e5", "mmbert", "harrier-270m", "qwen3-embedding", "umt5")


def each_of(names: Iterable[str]) -> list[Any]:
    """Families as parameters of a test."""
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in names]


class Encoder(NamedTuple):
    name: str
    family: Family
    folder: str  # of the pipeline
    reference: SentenceTransformer
    model: HMDEForDocumentEmbedding  # not to be changed
    tokenizer: HMDETokenizer

    def hmde(self, **options: Any) -> HMDEForDocumentEmbedding:
        """An HMDE on this encoder that is no identity."""
        model = HMDEForDocumentEmbedding.from_sentence_encoder(self.folder, **SIZES, **options)
        randomise(model.hmde.document_encoder, seed=3)
        return model


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function from the name of a family to its encoder."""

    @cache
    def make(name: str) -> Encoder:
        folder = str(save_family(FAMILIES[name], tmp_path_factory.mktemp(name)))
        reference = SentenceTransformer(folder, device="cpu")
        tokenizer = HMDETokenizer.from_sentence_encoder(folder)
        made = Encoder(name, FAMILIES[name], folder, reference, None, tokenizer)  # type: ignore[arg-type]
        return made._replace(model=made.hmde())

    return make


@pytest.fixture(params=each_of(FAMILIES))
def encoder(request: pytest.FixtureRequest, encoders: Any) -> Encoder:
    return encoders(request.param)


def test_every_family_that_hmde_knows_is_tried_here() -> None:
    assert {*ENCODER_FAMILIES} <= {family.model_type for family in FAMILIES.values()}


def test_a_query_has_the_vector_that_sentence_transformers_gives(encoder: Encoder) -> None:
    expected = encoder.reference.encode_query(TEXTS, batch_size=1)
    found = encoder.model.encode_queries(TEXTS, encoder.tokenizer, normalize=False)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max(), rtol=0)


def sentence_vectors(encoder: Encoder, sentences: list[str]) -> Tensor:
    """Those of sentence-transformers, each sentence by itself, with the prompt of documents."""
    prompt = encoder.family.prompts.get("document", encoder.family.prompts.get("passage", ""))
    return encoder.reference.encode(sentences, prompt=prompt, batch_size=1, convert_to_tensor=True)


def test_a_document_of_three_sentences_is_what_the_slow_reference_makes_of_their_vectors(encoder: Encoder) -> None:
    weights = {name: weight.double() for name, weight in encoder.model.hmde.document_encoder.named_parameters()}
    with torch.no_grad():
        vectors = [*sentence_vectors(encoder, SENTENCES).double()]
        expected = reference_document_embedding(vectors, [1, 1, 1], weights, encoder.model.config)
    (found,) = encoder.model.encode_documents(DOCUMENTS[:1], encoder.tokenizer, normalize=False, return_tensors="pt")
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_packed_sentences_give_the_vectors_of_padded_ones(encoder: Encoder) -> None:
    attention = encoder.model.hmde.sentence_encoder.config._attn_implementation
    assert (attention == "packed") is encoder.family.packed
    padded = encoder.hmde(attn_implementation="eager")
    for model in (padded, encoder.model):
        assert not model.training
    expected = padded.encode_documents(DOCUMENTS, encoder.tokenizer)
    np.testing.assert_allclose(encoder.model.encode_documents(DOCUMENTS, encoder.tokenizer), expected, **CLOSE)


def test_a_batch_of_one_gives_the_vectors_of_a_batch_of_many(encoder: Encoder) -> None:
    alone = [encoder.model.encode_documents([text], encoder.tokenizer)[0] for text in DOCUMENTS]
    np.testing.assert_allclose(encoder.model.encode_documents(DOCUMENTS, encoder.tokenizer), alone, **CLOSE)
    for side in ("left", "right"):
        inputs = encoder.tokenizer(DOCUMENTS, padding=True, padding_side=side, return_tensors="pt")
        with torch.no_grad():
            vectors = torch.nn.functional.normalize(encoder.model(**inputs).pooler_output, dim=-1)
        np.testing.assert_allclose(vectors, alone, **CLOSE)


IN_A_FRESH_PROCESS = """
import json, sys, warnings
warnings.filterwarnings("ignore")
import numpy as np
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer
texts, folders = json.loads(sys.argv[1])
found = {}
for folder in folders:
    model = AutoModel.from_pretrained(folder, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    found[folder] = [model.encode_documents(texts, tokenizer).tolist(), model.encode_queries(texts, tokenizer).tolist()]
    assert "transformers_modules" in type(model).__module__
    again = SentenceTransformer(folder, trust_remote_code=True, device="cpu")
    for vectors, expected in zip((again.encode_document(texts), again.encode_query(texts)), found[folder]):
        np.testing.assert_allclose(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), expected, atol=1e-5)
print(json.dumps(found))
"""


@pytest.mark.slow
def test_every_encoder_is_the_same_in_a_fresh_process_by_transformers_and_sentence_transformers(
    encoders: Any, run_in_a_fresh_process: Callable[..., str], tmp_path: Path
) -> None:
    folders = {name: str(tmp_path / name) for name in FAMILIES}
    for name, folder in folders.items():
        encoders(name).model.save_pretrained(folder)
        encoders(name).tokenizer.save_pretrained(folder)
    texts_and_folders = json.dumps([DOCUMENTS, [*folders.values()]])
    printed = run_in_a_fresh_process(IN_A_FRESH_PROCESS, texts_and_folders, folder=tmp_path)
    found = json.loads(printed.splitlines()[-1])
    for name, folder in folders.items():
        model, tokenizer = encoders(name).model, encoders(name).tokenizer
        documents, queries = found[folder]
        np.testing.assert_allclose(documents, model.encode_documents(DOCUMENTS, tokenizer), **CLOSE, err_msg=name)
        np.testing.assert_allclose(queries, model.encode_queries(DOCUMENTS, tokenizer), **CLOSE, err_msg=name)


def test_a_gradient_step_reaches_every_weight_and_lowers_the_loss(encoder: Encoder) -> None:
    model = encoder.hmde()
    inputs = encoder.tokenizer(DOCUMENTS, padding=True, return_tensors="pt")
    target = torch.randn(len(DOCUMENTS), model.config.hidden_size, generator=torch.Generator().manual_seed(4))

    def loss() -> Tensor:
        return 1 - torch.cosine_similarity(model(**inputs).pooler_output, target).mean()

    before = loss()
    before.backward()
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    without = [name for name, weight in weights.items() if weight.grad is None]
    assert not without
    assert all(weight.grad.isfinite().all() for weight in weights.values() if weight.grad is not None)
    reached = [name for name in weights if name.startswith(("hmde.sentence_encoder", "hmde.sentence_modules"))]
    norm = torch.cat([weight.grad.flatten() for weight in weights.values() if weight.grad is not None]).norm()
    assert sum(weights[name].grad.abs().sum() > 0 for name in reached) > 0.8 * len(reached)  # type: ignore[union-attr]
    with torch.no_grad():
        for weight in weights.values():
            weight -= 1e-3 / norm * weight.grad  # type: ignore[operator]
        assert loss() < before


# --- sentences read together in a passage ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", each_of(["harrier-270m", "qwen2-sliding", "llama", "sgpt", "deberta-v2"]))
def test_in_a_passage_a_sentence_is_pooled_over_its_own_tokens(name: str, encoders: Any) -> None:
    """For `lasttoken`: the state of its last token, an end token if there is one, which has seen what stands before."""
    encoder = encoders(name)
    options = {"max_sentence_length": 100, "passage_length": 200}
    packed, padded = encoder.hmde(**options), encoder.hmde(**options, attn_implementation="eager")
    inputs = encoder.tokenizer(DOCUMENTS[:1], return_tensors="pt")
    before, after = encoder.tokenizer.num_special_tokens
    pooling = packed.config.sentence_pooling
    rows = inputs["sentence_ids"][0]
    parts = [inputs["input_ids"][0][rows == place].tolist() for place in range(3)]
    parts = [part[before:] if place else part for place, part in enumerate(parts)]
    if pooling != "lasttoken" and after:
        parts = [part[:-after] if place < 2 else part for place, part in enumerate(parts)]
    ids = torch.tensor([[token for part in parts for token in part]])
    expected = []
    with torch.no_grad():
        states = padded.hmde.sentence_encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        for own in states.split([*map(len, parts)]):
            weights = torch.arange(1.0, len(own) + 1).unsqueeze(1)
            expected.append(
                {
                    "lasttoken": lambda own=own: own[-1],
                    "max": lambda own=own: own.max(dim=0).values,
                    "weightedmean": lambda own=own, weights=weights: (weights * own).sum(dim=0) / weights.sum(),
                }[pooling]()
            )
        expected_vectors = packed.hmde.sentence_modules(torch.stack(expected))
        exported = encoder.tokenizer.by_passage(encoder.tokenizer(DOCUMENTS[:1]), packed.config)
        exported_inputs = {key: torch.from_numpy(value) for key, value in exported.items()}
        assert exported["input_ids"].shape[1] == 1
        reads = ((packed, inputs), (padded, inputs), (padded.hmde.forward_by_passage, exported_inputs))
        for read, given in reads:
            vectors = read(**given).sentence_embeddings[0]
            torch.testing.assert_close(
                vectors, expected_vectors, rtol=0, atol=2e-5 * float(expected_vectors.abs().max())
            )


def test_a_causal_encoder_does_not_read_ahead(encoders: Any) -> None:
    for name in ("harrier-270m", "qwen3-embedding", "llama"):
        encoder = encoders(name)
        model = encoder.hmde(max_sentence_length=100, passage_length=200)
        with torch.no_grad():
            first, second = (
                model(**encoder.tokenizer([text], return_tensors="pt")).sentence_embeddings[0, 0]
                for text in ("The cat sat.\nIt was warm.", "The cat sat.\nDer Hund sah die Katze.")
            )
        torch.testing.assert_close(first, second, msg=name)


# --- what a saved pipeline is used by ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", each_of(["embeddinggemma", "umt5", "nomic"]))
def test_sentences_are_explained_and_found_in_the_text(name: str, encoders: Any) -> None:
    encoder = encoders(name)
    found, described = encoder.model.encode_documents(DOCUMENTS, encoder.tokenizer, sentences=True)
    assert [DOCUMENTS[0][begin:end] for begin, end in described[0].spans] == SENTENCES
    (explained,) = encoder.model.explain("the cat", DOCUMENTS[:1], encoder.tokenizer)
    assert sorted(sentence[:2] for sentence in explained.sentences) == described[0].spans
    assert found.shape == (3, SIZE)
