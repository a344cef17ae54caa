"""A batch in chunks against the same batch at once, gradient by gradient."""

from __future__ import annotations

import copy

import pytest
import torch
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from training.data.kinds import DOCUMENTS, QUERIES
from training.encoder import TwoPathEncoder
from training.loop import cached_gradients
from training.loop.cached_gradients import Chunk, Embeddings, backward_through_chunks, chunk_bounds, cut_into_chunks
from training.losses.candidates import Candidates
from training.losses.info_nce import info_nce


@pytest.fixture
def encoder(model) -> TwoPathEncoder:
    return TwoPathEncoder(copy.deepcopy(model))


@pytest.fixture
def batch(tokenizer, documents) -> Chunk:
    """Two triples: six documents of quite different lengths, two queries."""
    rows = tokenizer(documents, padding=True, return_tensors="pt")
    queries = tokenizer(["The cat sat", "Katze"], as_queries=True, padding=True, return_tensors="pt")
    return {QUERIES: dict(queries), DOCUMENTS: dict(rows)}


def objective(embeddings: Embeddings) -> dict[str, torch.Tensor]:
    """By documents and queries."""
    anchors, positives, negatives = embeddings[DOCUMENTS].split(2)
    candidates = Candidates(positives, negatives, torch.tensor([0, 1]), torch.tensor([2, 3]))
    return {
        "document_loss": info_nce(anchors, candidates, 0.05).mean(),
        "query_loss": info_nce(embeddings[QUERIES], candidates, 0.05).mean(),
    }


def gradients(encoder: nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.grad.clone() for name, weight in encoder.named_parameters() if weight.grad is not None}


def at_once(encoder: nn.Module, chunks: list[Chunk]) -> tuple[float, dict[str, torch.Tensor]]:
    """One graph over all chunks, one backward pass."""
    encoder.zero_grad()
    parts = [encoder(chunk) for chunk in chunks]
    embeddings = {name: torch.cat([part[name] for part in parts if name in part]) for name in (QUERIES, DOCUMENTS)}
    loss = sum(objective(embeddings).values())
    loss.backward()
    return float(loss), gradients(encoder)


def cached(encoder: nn.Module, chunks: list[Chunk]) -> tuple[float, dict[str, torch.Tensor]]:
    encoder.zero_grad()
    losses = backward_through_chunks(Accelerator(cpu=True), encoder, chunks, objective)
    return float(sum(losses.values())), gradients(encoder)


@pytest.mark.parametrize("max_tokens", [1, 40, 60])
def test_loss_and_gradients_are_those_of_one_graph_with_the_same_dropout(encoder, batch, max_tokens):
    encoder.train()
    chunks = cut_into_chunks(batch, max_tokens)
    assert len(chunks) > 1
    torch.manual_seed(7)
    expected_loss, expected = at_once(encoder, chunks)
    after = torch.get_rng_state()
    torch.manual_seed(7)
    loss, found = cached(encoder, chunks)
    assert loss == pytest.approx(expected_loss, abs=1e-5)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-5)
    assert torch.equal(torch.get_rng_state(), after)  # the next batch draws what it would have drawn


@pytest.mark.parametrize("max_tokens", [1, 40, 10_000])
def test_without_dropout_they_are_those_of_the_whole_batch_in_one_pass(encoder, batch, max_tokens):
    encoder.double().eval()
    expected_loss, expected = at_once(encoder, [batch])
    loss, found = cached(encoder, cut_into_chunks(batch, max_tokens))
    assert loss == pytest.approx(expected_loss, abs=1e-5)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-5)


def test_other_dropout_the_second_time_would_show(encoder, batch, monkeypatch):
    encoder.train()
    chunks = cut_into_chunks(batch, 40)
    torch.manual_seed(7)
    _, expected = at_once(encoder, chunks)
    torch.manual_seed(7)
    monkeypatch.setattr(cached_gradients, "_replay", lambda encoder, chunk, random_state: encoder(chunk))
    _, found = cached(encoder, chunks)
    assert any((found[name] - gradient).abs().max() > 1e-2 for name, gradient in expected.items())


def test_only_one_chunk_has_a_graph_at_a_time(encoder, batch):
    with_graph = []
    encoder.register_forward_hook(lambda *_: with_graph.append(torch.is_grad_enabled()))
    chunks = cut_into_chunks(batch, max_tokens=16)
    cached(encoder, chunks)
    assert with_graph == [False] * len(chunks) + [True] * len(chunks)


@pytest.mark.parametrize("most", [3, 4, 5, 8])
def test_a_process_has_as_many_chunks_as_the_one_that_needs_most(batch, monkeypatch, most):
    monkeypatch.setattr(cached_gradients, "most_of_any_process", lambda count, device: most)
    chunks = cut_into_chunks(batch, max_tokens=10_000, num_processes=2)
    assert len(chunks) == most
    for name, rows in batch.items():
        parts = [chunk[name]["input_ids"] for chunk in chunks if name in chunk]
        width = rows["input_ids"].shape[1]
        found = torch.cat([nn.functional.pad(part, (0, width - part.shape[1])) for part in parts])
        assert torch.equal(found * rows["attention_mask"], rows["input_ids"] * rows["attention_mask"])


def test_a_batch_of_one_chunk_is_embedded_once(encoder, batch):
    passes = []
    encoder.register_forward_hook(lambda *_: passes.append(1))
    cached(encoder, cut_into_chunks(batch, 10_000))
    assert len(passes) == 1


def test_a_document_longer_than_the_budget_has_a_chunk_of_its_own_and_is_told_of(batch, caplog):
    cached_gradients.logger.warning_once.cache_clear()
    with caplog.at_level("WARNING"):
        chunks = cut_into_chunks({DOCUMENTS: batch[DOCUMENTS]}, max_tokens=20)
    assert len(chunks[0][DOCUMENTS]["input_ids"]) == 1
    longest = int(batch[DOCUMENTS]["attention_mask"].sum(dim=1).max())
    assert f"A document of {longest} tokens is longer than max_tokens_per_chunk, 20" in caplog.text


def test_a_frozen_sentence_encoder_gets_no_gradient_and_its_queries_no_backward_pass(encoder, batch):
    encoder.model.hmde.sentence_encoder.requires_grad_(False)
    _, found = cached(encoder, cut_into_chunks(batch, 1))
    assert found
    assert not [name for name in found if "sentence_encoder" in name]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 100))
def test_chunks_hold_all_rows_in_order_and_keep_to_the_budget(lengths, max_tokens):
    bounds = chunk_bounds(lengths, max_tokens)
    assert [row for first, end in bounds for row in range(first, end)] == list(range(len(lengths)))
    for first, end in bounds:
        assert sum(lengths[first:end]) <= max_tokens or end - first == 1


def test_chunks_lose_no_token_and_carry_no_column_of_padding(batch):
    chunks = cut_into_chunks(batch, 40)
    for kind in (DOCUMENTS, QUERIES):
        parts = [chunk[kind] for chunk in chunks if kind in chunk]
        whole = batch[kind]
        tokens = [part["input_ids"][part["attention_mask"].bool()] for part in parts]
        assert torch.equal(torch.cat(tokens), whole["input_ids"][whole["attention_mask"].bool()])
        assert all(part["attention_mask"][:, -1].any() for part in parts)
    assert DOCUMENTS in chunks[-1]


def test_what_is_no_row_of_tokens_keeps_its_length(batch):
    """Such as translations, longer than the row, and one number for each row."""
    rows = batch[DOCUMENTS]
    count, length = rows["input_ids"].shape
    rows |= {"target_tokens": torch.arange(count * 2 * length).view(count, -1), "target_language": torch.arange(count)}
    parts = [chunk[DOCUMENTS] for chunk in cut_into_chunks(batch, 40) if DOCUMENTS in chunk]
    assert len(parts) > 1
    for name in ("target_tokens", "target_language"):
        assert torch.equal(torch.cat([part[name] for part in parts]), rows[name])


@pytest.mark.parametrize("max_tokens", [40, 10_000])
def test_random_numbers_go_on_where_the_objective_left_them(encoder, batch, max_tokens):
    encoder.train()
    drawn = []

    def drawing(embeddings: Embeddings) -> dict[str, torch.Tensor]:
        drawn.append(torch.rand(3))
        drawn.append(torch.get_rng_state())
        return objective(embeddings)

    backward_through_chunks(Accelerator(cpu=True), encoder, cut_into_chunks(batch, max_tokens), drawing)
    assert torch.equal(torch.get_rng_state(), drawn[1])


@pytest.mark.parametrize("max_tokens", [40, 10_000])
def test_a_weight_multiplies_gradients_and_not_the_losses_that_are_reported(encoder, batch, max_tokens):
    encoder.double().eval()
    chunks = cut_into_chunks(batch, max_tokens)
    loss, whole = cached(encoder, chunks)
    encoder.zero_grad()
    losses = backward_through_chunks(Accelerator(cpu=True), encoder, chunks, objective, weight=0.25)
    assert float(sum(losses.values())) == pytest.approx(loss)
    assert not any(one.requires_grad for one in losses.values())
    for name, gradient in gradients(encoder).items():
        torch.testing.assert_close(gradient, whole[name] / 4)


@pytest.mark.parametrize("synchronise", [True, False])
def test_gradients_are_sent_once_a_batch_with_its_last_chunk(encoder, batch, monkeypatch, synchronise):
    accelerator, sent = Accelerator(cpu=True), []
    backward = accelerator.backward

    def note(loss: torch.Tensor) -> None:
        sent.append(accelerator.sync_gradients)
        backward(loss)

    monkeypatch.setattr(accelerator, "backward", note)
    chunks = cut_into_chunks(batch, 40)
    backward_through_chunks(accelerator, encoder, chunks, objective, synchronise=synchronise)
    assert len(chunks) > 2
    assert sent == [False] * (len(chunks) - 1) + [synchronise]
