"""Tables and files of results."""

from __future__ import annotations

import pytest

from evaluation.tables import Table, averages

TABLE = Table("MAP", "pair", {"first": {"en-de": 0.12345, "en-fr": 1.0}, "hmde": {"en-de": 0.5, "en-fr": 0.0}})


def test_a_table_has_a_row_a_pair_and_a_column_a_system() -> None:
    assert TABLE.to_markdown().splitlines() == [
        "MAP",
        "",
        "| pair | first | hmde |",
        "|:---|---:|---:|",
        "| en-de | 0.123 | 0.500 |",
        "| en-fr | 1.000 | 0.000 |",
    ]


def test_an_average_is_over_the_rows_of_its_group_and_empty_groups_are_left_out() -> None:
    scores = {"de": {"MAP": 0.2, "MRR": 0.4}, "fr": {"MAP": 0.4, "MRR": 0.8}, "ru": {"MAP": 0.9, "MRR": 0.9}}
    groups = {"average": ["de", "fr", "ru"], "seen": ["de", "fr"], "unseen": []}
    assert averages(scores, groups, ["MAP"]) == {
        "average": {"MAP": pytest.approx(0.5)},
        "seen": {"MAP": pytest.approx(0.3)},
    }


def test_a_score_that_is_not_there_is_an_empty_cell_and_a_marked_one_shows_its_mark() -> None:
    scores = {"bm25": {"en-en": 0.5}, "hmde": {"en-de": 0.25, "en-en": 0.75}}
    table = Table("MAP", "pair", scores, {"bm25": {"en-en": "*"}}, note="\\* differs.")
    assert table.to_markdown().splitlines()[4:] == [
        "| en-en | 0.500* | 0.750 |",
        "| en-de |  | 0.250 |",
        "",
        "\\* differs.",
    ]
    assert averages(scores, {}, ["MAP"]) == {}


def test_an_average_over_rows_that_are_not_all_there_is_left_out() -> None:
    assert averages({"en-en": {"MAP": 0.5}}, {"average": ["en-en", "en-de"]}, ["MAP"]) == {}
