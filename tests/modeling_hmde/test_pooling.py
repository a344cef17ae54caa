"""Poolings of exported models beside those of rows, and in half precision."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from modeling_hmde.configuration_hmde import SentencePooling
from modeling_hmde.pooling_hmde import TOKEN_WEIGHTS, pool, pool_sentences

LENGTHS = [3, 1, 5]


@pytest.fixture
def states() -> Tensor:
    return torch.randn(sum(LENGTHS), 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("pooling", [*TOKEN_WEIGHTS, "max"])
def test_exporters_pool_the_same_tokens_between_padding(pooling: SentencePooling, states: Tensor) -> None:
    """Two documents of two passages each; padding stands at the end of each passage, and says nothing."""
    rows = torch.full((2, 8, 4), torch.nan, dtype=torch.float64)
    real = torch.tensor([[1, 1, 1, 0, 1, 0, 0, 0], [1, 1, 1, 0, 1, 1, 0, 0]]).bool()
    rows[real] = states
    rows[~real] = 7.0
    lengths = torch.tensor([[2, 1, 1], [5, 0, 0]])
    found = pool_sentences(pooling, rows, real, lengths)
    expected = torch.zeros(2, 3, 4, dtype=torch.float64)
    expected[lengths > 0] = pool(pooling, states, lengths[lengths > 0], None)
    torch.testing.assert_close(found, expected)


def test_means_of_half_precision_are_summed_in_float32() -> None:
    states = torch.rand(2, 4000, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    expected = states.float().mean(dim=1).bfloat16()
    lengths = torch.tensor([4000, 4000])
    found = pool("mean", states.flatten(0, 1), lengths, None)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.005, atol=0)
    found = pool_sentences("mean", states, torch.ones(2, 4000).bool(), lengths.unsqueeze(1))
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.squeeze(1), expected, rtol=0.005, atol=0)
