"""A part of the triples, by pair of languages."""

from __future__ import annotations

from collections import Counter

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tests.training.corpus.own_articles import run, world, write_articles
from training.corpus.hard_negatives import TRIPLE_COLUMNS
from training.corpus.subsample import sample_triples


def test_a_sample_has_the_number_asked_for_in_the_shares_of_its_exponent(tmp_path):
    articles = write_articles(tmp_path / "articles", world())
    every, some = (
        [tuple(triple.values()) for triple in run(articles, tmp_path / name, *options)]
        for name, options in (("all", []), ("some", ["--num_triples", "12", "--pair_exponent", "0.0"]))
    )
    assert set(some) < set(every)
    assert Counter("".join(sorted((row[1], row[2]))) for row in some) == {"deen": 4, "defr": 4, "enfr": 4}
    assert some == sorted(some, key=lambda row: (row[6], row[0], row[1], row[2]))


@pytest.mark.parametrize(
    ("total", "exponent", "shares"),
    [
        (100, 1.0, {"de-en": 90, "fi-hu": 10}),
        (400, 0.5, {"de-en": 300, "fi-hu": 100}),
        (500, 0.0, {"de-en": 400, "fi-hu": 100}),  # what one is short of goes to the other
        (7, 0.0, {"de-en": 4, "fi-hu": 3}),
        (9999, 0.7, {"de-en": 900, "fi-hu": 100}),
    ],
)
def test_shares_grow_with_the_power_and_no_pair_gives_more_than_it_has(tmp_path, total, exponent, shares):
    pairs = [*900 * [("de", "en")], *50 * [("fi", "hu")], *50 * [("hu", "fi")]]
    rows = [
        dict.fromkeys(TRIPLE_COLUMNS, "") | {"concept_id": str(row), "anchor_language": one, "positive_language": other}
        for row, (one, other) in enumerate(pairs)
    ]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "all.parquet")
    sample_triples(duckdb.connect(), tmp_path / "all.parquet", tmp_path / "some.parquet", total, exponent, seed=1)
    drawn = parquet.read_table(tmp_path / "some.parquet").to_pylist()
    found = Counter("-".join(sorted((row["anchor_language"], row["positive_language"]))) for row in drawn)
    assert found == shares
    assert len({row["concept_id"] for row in drawn}) == len(drawn)


def test_an_exponent_without_a_number_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="set num_triples too"):
        run(write_articles(tmp_path / "articles", world()), tmp_path / "corpus", "--pair_exponent", "0.7")
