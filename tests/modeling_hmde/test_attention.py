"""Packed attention and attention by products, against loops in plain Python."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from modeling_hmde import attention_hmde
from modeling_hmde.attention_hmde import (
    attention_by_products,
    attention_mask_of,
    packed_attention,
    packed_attention_arguments,
    products_are_faster,
)


def bidirectional_layer() -> torch.nn.Module:
    """An attention layer as packed attention asks for one: it says that it is not causal."""
    layer = torch.nn.Identity()
    layer.is_causal = False  # type: ignore[assignment]
    return layer


def attention_one_by_one(query: Tensor, key: Tensor, value: Tensor, lengths: list[int], width: int | None) -> Tensor:
    """(1, heads, tokens, head width) -> (1, tokens, heads, head width), one token of one sequence at a time."""
    attended = []
    for q, k, v in zip(*(states[0].split(lengths, dim=1) for states in (query, key, value)), strict=True):
        for place in range(q.shape[1]):
            seen = [other for other in range(q.shape[1]) if width is None or abs(other - place) < width]
            weights = (k[:, seen] @ q[:, place].unsqueeze(-1) * 0.3).softmax(dim=1)
            attended.append((weights * v[:, seen]).sum(dim=1))
    return torch.stack(attended).unsqueeze(0)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.sampled_from([None, 1, 3]))
def test_packed_attention_never_leaves_a_sequence_nor_its_window(lengths: list[int], width: int | None) -> None:
    generator = torch.Generator().manual_seed(sum(lengths))
    states = torch.randn(3, 1, 2, sum(lengths), 4, generator=generator, dtype=torch.float64)
    direction = torch.randn(1, sum(lengths), 2, 4, generator=generator, dtype=torch.float64)
    theirs, ours = states.clone().requires_grad_(), states.clone().requires_grad_()
    expected = attention_one_by_one(*theirs, lengths, width)
    arguments = packed_attention_arguments(torch.tensor(lengths))
    actual, weights = packed_attention(
        bidirectional_layer(), *ours, None, scaling=0.3, sliding_window=width, **arguments
    )
    assert weights is None
    torch.testing.assert_close(actual, expected)
    (actual * direction).sum().backward()
    (expected * direction).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [None, 1, 2, 4, 5, 9])
def test_a_mask_lets_a_token_see_those_that_are_near_and_if_causal_not_later(width: int | None, causal: bool) -> None:
    mask = attention_mask_of(5, width, causal, torch.device("cpu"))
    seen = [
        [abs(row - column) < (width or 5) and not (causal and column > row) for column in range(5)] for row in range(5)
    ]
    assert ([[True] * 5] * 5 if mask is None else mask.tolist()) == seen
    assert (mask is None) == all(map(all, seen))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [None, 0.5])
@pytest.mark.parametrize("heads_at_once", [1, 2, 5, 100])
def test_attention_by_products_and_its_gradients_are_those_of_the_softmax_written_out(
    monkeypatch, masked, scale, heads_at_once
) -> None:
    sequences, heads, tokens, width = 3, 2, 7, 4
    monkeypatch.setattr(attention_hmde, "SCORES_AT_ONCE", heads_at_once * tokens**2 // torch.get_num_threads())
    generator = torch.Generator().manual_seed(0)
    shape = (3, sequences, heads, tokens, width)
    states = torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True)
    away = torch.randn(shape[1:], dtype=torch.float64, generator=generator)
    mask = torch.ones(tokens, tokens).triu(-1).bool() if masked else None

    def written_out(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """One query at a time."""
        rows = []
        for index in range(tokens):
            visible = range(tokens) if mask is None else mask[index].nonzero().flatten().tolist()
            exponentials = [((scale or width**-0.5) * query[index] @ key[other]).exp() for other in visible]
            weighted = [weight * value[other] for weight, other in zip(exponentials, visible)]
            rows.append(torch.stack(weighted).sum(dim=0) / torch.stack(exponentials).sum())
        return torch.stack(rows)

    expected = torch.stack(
        [
            torch.stack([written_out(*states[:, sequence, head]) for head in range(heads)])
            for sequence in range(sequences)
        ]
    )
    attended = attention_by_products(*states, attn_mask=mask, dropout_p=0.0, scale=scale)
    torch.testing.assert_close(attended, expected)
    (gradient,) = torch.autograd.grad((attended * away).sum(), states)
    (expected_gradient,) = torch.autograd.grad((expected * away).sum(), states)
    torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize("tiles", [False, True])
@pytest.mark.parametrize("scaling", [None, 0.1])
def test_packed_attention_in_bfloat16_is_that_in_float32_to_its_precision(
    scaling: float | None, tiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_hmde, "has_tiles", lambda: tiles)
    lengths = torch.tensor([9, 9, 4, 1])
    arguments = packed_attention_arguments(lengths)
    states = torch.randn(3, 1, 2, int(lengths.sum()), 8, generator=torch.Generator().manual_seed(0))
    arguments["scaling"] = scaling
    in_float32, _ = packed_attention(bidirectional_layer(), *states, None, **arguments)
    in_bfloat16, _ = packed_attention(bidirectional_layer(), *states.bfloat16(), None, **arguments)
    assert in_bfloat16.dtype == torch.bfloat16
    torch.testing.assert_close(in_bfloat16.float(), in_float32, rtol=0, atol=0.03)


@pytest.mark.parametrize(
    ("dtype", "trained", "tiles", "products"),
    [
        (torch.float32, True, False, False),
        (torch.bfloat16, True, False, True),
        (torch.bfloat16, False, False, True),
        (torch.bfloat16, True, True, True),
        (torch.bfloat16, False, True, False),  # PyTorch's forward pass uses the tiles, its backward pass is slow
    ],
)
def test_products_serve_where_they_are_faster(
    dtype: torch.dtype, trained: bool, tiles: bool, products: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_hmde, "has_tiles", lambda: tiles)
    assert products_are_faster(torch.zeros(1, dtype=dtype, requires_grad=trained)) == products


def test_attention_by_products_drops_weights_as_often_as_it_is_told() -> None:
    torch.manual_seed(0)
    query = key = torch.zeros(1, 1, 500, 2)
    value = torch.ones(1, 1, 500, 1)
    attended = attention_by_products(query, key, value, attn_mask=None, dropout_p=0.4, scale=None)
    assert float(attended.mean()) == pytest.approx(1, abs=0.02)
    assert float(attended.std()) == pytest.approx((0.4 / 0.6 / 500) ** 0.5, rel=0.1)
