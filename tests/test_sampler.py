"""Which triples share a batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.sampler import batches_of_epoch

PAIRS = ["de-en"] * 40 + ["fr-en"] * 20 + ["de-fr"] * 4


@given(st.integers(1, 64), st.integers(0, 3), st.booleans())
def test_no_triple_comes_twice_in_an_epoch_and_fewer_than_a_batch_are_left_out(batch_size, epoch, grouped):
    lengths = np.arange(len(PAIRS)) if grouped else None
    batches = batches_of_epoch(PAIRS, batch_size, epoch=epoch, seed=0, lengths=lengths)
    assert batches.shape == (len(PAIRS) // batch_size, batch_size)
    assert len(set(batches.flatten().tolist())) == batches.size


def test_the_seed_and_the_epoch_decide():
    first = batches_of_epoch(PAIRS, 4, epoch=0, seed=0)
    assert np.array_equal(first, batches_of_epoch(PAIRS, 4, epoch=0, seed=0))
    assert not np.array_equal(first, batches_of_epoch(PAIRS, 4, epoch=1, seed=0))
    assert not np.array_equal(first, batches_of_epoch(PAIRS, 4, epoch=0, seed=1))


def test_grouped_batches_are_even_in_length_come_in_random_order_and_change_with_the_epoch():
    lengths = np.random.default_rng(0).permutation(640)
    pairs = ["de-en"] * 640
    batches = batches_of_epoch(pairs, 8, epoch=0, seed=0, lengths=lengths)
    alone = batches_of_epoch(pairs, 8, epoch=0, seed=0)
    assert np.ptp(lengths[batches], axis=1).mean() < np.ptp(lengths[alone], axis=1).mean() / 10
    means = lengths[batches].mean(axis=1)
    assert 20 < (np.diff(means) > 0).sum() < 60  # neither rising nor falling
    later = batches_of_epoch(pairs, 8, epoch=1, seed=0, lengths=lengths)
    assert {frozenset(batch) for batch in batches.tolist()}.isdisjoint(frozenset(batch) for batch in later.tolist())


def test_batches_of_the_same_languages_hold_one_pair_each():
    batches = batches_of_epoch(PAIRS, 8, epoch=0, seed=0, same_languages=True)
    kinds = [{PAIRS[triple] for triple in batch} for batch in batches]
    assert all(len(kind) == 1 for kind in kinds)
    assert len(batches) == 5 + 2  # the four triples of de-fr are fewer than a batch


def test_an_exponent_of_0_draws_all_pairs_alike_and_the_epoch_stays_as_long():
    drawn = np.concatenate(
        [batches_of_epoch(PAIRS, 1, epoch=epoch, seed=0, language_exponent=0.0).flatten() for epoch in range(30)]
    )
    assert len(drawn) == 30 * len(PAIRS)
    pairs, counts = np.unique(np.array(PAIRS)[drawn], return_counts=True)
    assert len(pairs) == 3
    assert np.ptp(counts) < 0.15 * len(drawn)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 65}, "a batch of 65 triples over all processes is more than there is: 64 triples in 1 group;"),
        ({"batch_size": 41, "same_languages": True}, "64 triples in 3 groups; .* leave out same_languages"),
    ],
)
def test_a_batch_larger_than_the_epoch_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        batches_of_epoch(PAIRS, epoch=0, seed=0, **options)
