"""Which triples share a batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.sampler import batches_of_epoch

PAIRS = ["de-en"] * 40 + ["fr-en"] * 20 + ["de-fr"] * 4


@given(st.integers(1, 64), st.integers(0, 3))
def test_no_triple_comes_twice_in_an_epoch_and_fewer_than_a_batch_are_left_out(batch_size, epoch):
    batches = batches_of_epoch(PAIRS, batch_size, epoch=epoch, seed=0)
    assert batches.shape == (len(PAIRS) // batch_size, batch_size)
    assert len(set(batches.flatten().tolist())) == batches.size


def test_the_seed_and_the_epoch_decide():
    first = batches_of_epoch(PAIRS, 4, epoch=0, seed=0)
    assert np.array_equal(first, batches_of_epoch(PAIRS, 4, epoch=0, seed=0))
    assert not np.array_equal(first, batches_of_epoch(PAIRS, 4, epoch=1, seed=0))
    assert not np.array_equal(first, batches_of_epoch(PAIRS, 4, epoch=0, seed=1))


def test_an_exponent_of_0_draws_all_pairs_alike_and_the_epoch_stays_as_long():
    drawn = np.concatenate(
        [batches_of_epoch(PAIRS, 1, epoch=epoch, seed=0, language_exponent=0.0).flatten() for epoch in range(30)]
    )
    assert len(drawn) == 30 * len(PAIRS)
    pairs, counts = np.unique(np.array(PAIRS)[drawn], return_counts=True)
    assert len(pairs) == 3
    assert np.ptp(counts) < 0.15 * len(drawn)


def test_a_batch_larger_than_the_epoch_is_refused():
    with pytest.raises(
        ValueError, match="a batch of 65 examples over all processes is more than there are: 64 examples;"
    ):
        batches_of_epoch(PAIRS, 65, epoch=0, seed=0)
