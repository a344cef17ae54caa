"""A part of the triples, by pair of languages."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.corpus.own_articles import run, world, write_articles
from training.corpus.subsample import quotas


def test_a_sample_has_the_number_asked_for_in_the_shares_of_its_exponent(tmp_path):
    articles = write_articles(tmp_path / "articles", world())
    every, some = (
        [tuple(triple.values()) for triple in run(articles, tmp_path / name, *options)]
        for name, options in (("all", []), ("some", ["--num_triples", "12", "--pair_exponent", "0.0"]))
    )
    assert set(some) < set(every)
    assert Counter("".join(sorted((row[1], row[2]))) for row in some) == {"deen": 4, "defr": 4, "enfr": 4}
    assert some == sorted(some, key=lambda row: (row[6], row[0], row[1], row[2]))


@given(
    sizes=st.dictionaries(st.text("abc", min_size=1), st.integers(1, 10**6), min_size=1, max_size=8),
    total=st.integers(0, 10**6),
    exponent=st.floats(0, 1),
)
def test_quotas_add_up_and_ask_for_no_more_than_there_are(sizes, total, exponent):
    quota = quotas(sizes, total, exponent)
    assert sum(quota.values()) == min(total, sum(sizes.values()))
    assert all(0 <= quota[kind] <= size for kind, size in sizes.items())


def test_an_exponent_without_a_number_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="set num_triples too"):
        run(write_articles(tmp_path / "articles", world()), tmp_path / "corpus", "--pair_exponent", "0.7")
