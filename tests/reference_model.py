"""The paper's model as loops over documents and sentences, which pad nothing: the reference of the tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor
from torch.nn.functional import gelu
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

MakeModel = Callable[..., HMDEForDocumentEmbedding]
DOCUMENTS = [
    ["The cat sat on the mat.", "It was warm there!", "Did the dog see it?", "кот"],
    ["Le chat dort."],
    ["猫在垫子上睡觉。", "Кот спит на ковре.", "a"],
    ["Der Hund sah die Katze.", "Sie lag in der Sonne."],
]
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
EXACT = {"rtol": 1e-8, "atol": 1e-8}  # of what is computed in float64, where rounding hides no mistake


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
    first = config.document_first_sentence
    mean, residual = (
        first * of[0] + (1 - first) * sum(count * state for count, state in zip(counts, of, strict=True)) / sum(counts)
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
