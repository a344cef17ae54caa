"""Protocols of other papers' tables: re-ranking, and numbers beside published ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from evaluation.tasks.retrieval import to_trec
from replications.evaluate import main
from replications.published import read_published
from tests.evaluation.running import evaluated
from tests.paths import written

pytestmark = pytest.mark.slow


PUBLISHED = [
    {
        "table": "2", "source": "Somebody", "task": "animals", "measure": "MAP", "protocol": "theirs",
        "rows": {"first": {"label": "LaBSE", "cells": {"en-de": 0.5, "average": 0.25}},
                 "absent": {"label": "X", "cells": {"en-de": 0.5}},
                 "quoted": {"label": "Y", "cells": {"en-de": 0.4}, "not_run": "quoted from others"}},
    }
]  # fmt: skip


def results_of(recipe: dict[str, Any], *arguments: str) -> dict[str, Any]:
    return evaluated(recipe, *arguments, command=main)["tasks"]


@pytest.fixture
def recipe(tmp_path: Path, labse: Path) -> dict[str, Any]:
    """Query 1 has the words of D1, which is relevant; query 2 those of D2, and D1 is relevant."""
    texts = {"D1": "the cat sat on the mat", "D2": "the dog it was warm"}
    lines = [json.dumps({"doc_id": name, "text": text}) for name, text in texts.items()]
    written(tmp_path / "data" / "docs" / "de.jsonl", "\n".join(lines) + "\n")
    written(tmp_path / "data" / "queries" / "en.tsv", f"1\t{texts['D1']}\n2\t{texts['D2']}\n")
    written(tmp_path / "data" / "qrels.tsv", "1 0 D1 1\n2 0 D1 1\n")
    return {
        "output": str(tmp_path / "out"),
        "published": str(written(tmp_path / "published.yaml", yaml.safe_dump(PUBLISHED))),
        "systems": {"first": {"kind": "first", "model": str(labse), "pooling": "mean"}},
        "retrieval": {"animals": {"data": str(tmp_path / "data"), "pairs": ["en-de"]}},
    }


def test_published_numbers_stand_beside_ours_and_missing_rows_say_why(recipe: dict[str, Any]) -> None:
    results_of(recipe)
    lines = (Path(recipe["output"]) / "published.md").read_text(encoding="utf-8").splitlines()
    for line in (
        "MAP, Somebody, table 2. Published: theirs",
        "| en-de | 0.750 | 0.500 | 0.250 |",
        "| average | 0.750 | 0.250 | 0.500 |",
        "* table 2 (Somebody), X: this run has no absent on animals",
        "* table 2 (Somebody), Y: quoted from others",
    ):
        assert line in lines


def test_which_published_rows_a_recipe_runs_is_printed_without_data_or_models(
    recipe: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe["retrieval"]["animals"]["data"] = recipe["systems"]["first"]["model"] = "nowhere"
    main(["rows", "--config", str(written(Path(recipe["output"]).with_name("recipe.yaml"), yaml.safe_dump(recipe)))])
    assert capsys.readouterr().out.splitlines() == [
        "table 2 (Somebody), animals: 1 of 3 rows are run",
        "  not run  X: this run has no absent on animals",
        "  run      LaBSE",
        "  not run  Y: quoted from others",
    ]
    assert not Path(recipe["output"]).exists()


def test_a_recipe_without_published_numbers_has_no_rows_to_print(recipe: dict[str, Any]) -> None:
    del recipe["published"]
    file = written(Path(recipe["output"]).with_name("recipe.yaml"), yaml.safe_dump(recipe))
    with pytest.raises(ValueError, match=r"rows prints .* recipe names none; give it their file, published"):
        main(["rows", "--config", str(file)])


def test_a_malformed_file_of_published_numbers_is_named(recipe: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a.yaml is no list of tables .*'rows'"):
        read_published(written(tmp_path / "a.yaml", "- {table: 1}\n"))
    entry = "- {table: 1, source: s, task: t, measure: MAP, protocol: p, rows: {x: {cells: {}}}}\n"
    with pytest.raises(ValueError, match=r"b.yaml is no list of tables .* argument: 'label'"):
        read_published(written(tmp_path / "b.yaml", entry))
    with pytest.raises(ValueError, match=r"nowhere.yaml is no list of tables .*No such file"):
        results_of(recipe | {"published": "nowhere.yaml"})
    assert not Path(recipe["output"]).exists()


def test_reranking_names_its_protocol_and_keeps_the_order_behind_the_first(
    recipe: dict[str, Any], tmp_path: Path
) -> None:
    task = recipe["retrieval"].pop("animals") | {"rerank": str(tmp_path / "mbert")}
    recipe["reranking"] = {"animals": task}
    with pytest.raises(ValueError, match=r"rerank: .*en-de.run is missing, but every pair needs .*; write"):
        results_of(recipe)
    written(tmp_path / "mbert" / "en-de.run", "1 Q0 D1 1 0.5\n")
    with pytest.raises(ValueError, match=r"rerank: .*en-de.run is no run as trec_eval reads it .*; write"):
        results_of(recipe)
    given = {"1": {"D2": 2.0, "D1": 1.0}, "2": {"D2": 5.0, "D1": 4.0}}
    written(tmp_path / "mbert" / "en-de.run", to_trec(given, tag="mbert"))
    found = results_of(recipe)["animals"]["first"]
    assert found["rows"]["en-de"]["MAP"] == 0.75  # as in full ranking
    assert found["protocol"] == "re-ranking of the first 100 of mbert"
    found = results_of(recipe, "--reranking.animals.rerank_depth", "1")["animals"]["first"]
    assert found["rows"]["en-de"]["MAP"] == 0.5  # D2 stays first
    written(tmp_path / "mbert" / "en-de.run", to_trec({"1": {"D7": 2.0}}, tag="mbert"))
    with pytest.raises(ValueError, match=r"the given run of en-de ranks D7, which docs/de.jsonl lacks"):
        results_of(recipe)
