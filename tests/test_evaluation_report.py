"""Tables and files of results."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from evaluation.report import Table, averages, write_report, write_whole

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


def test_the_terminal_shows_the_same_cells() -> None:
    screen = io.StringIO()
    Console(width=80, file=screen).print(TABLE.to_rich())
    shown = screen.getvalue().replace("┃", " ").replace("│", " ").split()
    assert [word for word in shown if word[0].isalnum()] == (
        ["MAP", "pair", "first", "hmde", "en-de", "0.123", "0.500", "en-fr", "1.000", "0.000"]
    )


def test_an_average_is_over_the_rows_of_its_group_and_empty_groups_are_left_out() -> None:
    scores = {"de": {"MAP": 0.2, "MRR": 0.4}, "fr": {"MAP": 0.4, "MRR": 0.8}, "ru": {"MAP": 0.9, "MRR": 0.9}}
    groups = {"average": ["de", "fr", "ru"], "seen": ["de", "fr"], "unseen": []}
    assert averages(scores, groups, ["MAP"]) == {
        "average": {"MAP": pytest.approx(0.5)},
        "seen": {"MAP": pytest.approx(0.3)},
    }


def test_a_report_is_two_files_and_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report(tmp_path / "new", {"seed": 1}, {"systems": {"é": 0.25}}, [TABLE, TABLE])
    content = json.loads((tmp_path / "new" / "results.json").read_text(encoding="utf-8"))
    assert content["recipe"] == {"seed": 1}
    assert content["systems"] == {"é": 0.25}
    assert content["environment"]["threads"] >= 1
    assert content["environment"]["packages"]["torch"]
    markdown = (tmp_path / "new" / "results.md").read_text(encoding="utf-8")
    assert markdown == TABLE.to_markdown() + "\n" + TABLE.to_markdown()
    assert capsys.readouterr().out == markdown + "\n"


def test_a_file_that_cannot_be_written_whole_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_whole(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "new \ud800")
    assert path.read_text() == "old"
