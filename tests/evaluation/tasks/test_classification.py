"""Zero-shot classification above frozen vectors, on texts whose scores can be worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.running import evaluated
from tests.evaluation.topics import AVERAGES, CATS, DOGS, ENGLISH, FRENCH, write_texts, write_topics


@pytest.fixture
def recipe(tmp_path: Path, labse: Path) -> dict[str, Any]:
    return {
        "output": str(tmp_path / "out"),
        "systems": {
            "base": {"kind": "first", "model": str(labse), "pooling": "mean"},
            "mean": {"kind": "sentences", "model": str(labse), "pooling": "mean"},
        },
        "classification": {"topics": {"data": write_topics(tmp_path / "data"), "test_languages": ["en", "fr"]}},
    }


def test_the_scores_are_those_worked_out_by_hand(recipe: dict[str, Any]) -> None:
    results = evaluated(recipe)["tasks"]
    assert list(results) == ["topics"]
    for system in results["topics"].values():
        assert system["rows"] == {"en-en": ENGLISH, "en-fr": FRENCH}
        assert system["averages"] == AVERAGES
        assert system["chosen"] == {"en": 0.1}


@pytest.mark.slow
def test_a_table_names_its_protocol(recipe: dict[str, Any]) -> None:
    recipe["classification"]["topics"]["measure"] = "macro_f1"
    evaluated(recipe)
    table = (Path(recipe["output"]) / "report.md").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith("macro_f1 on topics, frozen vectors, logistic regression, C chosen") for line in table)
    assert table.count("| en-fr | 0.733 | 0.733 |") == 1


def test_every_train_language_meets_every_test_language(recipe: dict[str, Any]) -> None:
    task = recipe["classification"]["topics"] | {"train_languages": ["en", "fr"]}
    for part in ("train", "dev"):  # what is cats in English is dogs in French
        write_texts(Path(task["data"]) / f"fr.{part}.tsv", ("dogs", CATS), ("cats", DOGS))
    found = evaluated(recipe | {"classification": {"topics": task}})["tasks"]["topics"]["base"]
    accuracies = {row: scores["accuracy"] for row, scores in found["rows"].items()}
    assert accuracies == {"en-en": 1.0, "en-fr": 0.75, "fr-en": 0.0, "fr-fr": 0.25}
    assert {group: scores["accuracy"] for group, scores in found["averages"].items()} == {
        "average": 0.5,
        "average, same language": 0.625,
        "average, across languages": 0.375,
        "transfer gap": 0.25,
    }


@pytest.mark.slow
def test_a_language_with_a_region_is_the_same_language_as_itself(recipe: dict[str, Any]) -> None:
    task = recipe["classification"]["topics"] | {"train_languages": ["pt-BR"], "test_languages": ["pt-BR", "fr"]}
    for part in ("train", "dev", "test"):
        write_texts(Path(task["data"]) / f"pt-BR.{part}.tsv", ("cats", CATS), ("dogs", DOGS))
    found = evaluated(recipe | {"classification": {"topics": task}})["tasks"]["topics"]["base"]
    assert found["averages"] == AVERAGES


@pytest.mark.parametrize("part", ["en.dev.tsv", "fr.test.tsv"])
def test_a_label_that_train_does_not_have_is_named_with_its_file(recipe: dict[str, Any], part: str) -> None:
    write_texts(Path(recipe["classification"]["topics"]["data"]) / part, ("cats", CATS), ("birds", "le chat"))
    with pytest.raises(ValueError, match=rf"{part} has the label 'birds', which .*en.train.tsv does not know: .*cats"):
        evaluated(recipe)
    assert not Path(recipe["output"]).exists()


def test_training_documents_of_one_label_are_refused(recipe: dict[str, Any]) -> None:
    for part in ("train", "dev", "test"):
        write_texts(Path(recipe["classification"]["topics"]["data"]) / f"en.{part}.tsv", ("cats", CATS))
    with pytest.raises(ValueError, match=r"en\.train\.tsv has no label but 'cats'; there is nothing to tell apart"):
        evaluated(recipe)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_languages": ["en", "ru"]}, "ru.test.tsv is missing"),
        ({"test_languages": ["en", "deu"]}, "language 'deu' is written 'de' here"),
        ({"train_languages": ["fr"]}, "fr.train.tsv is missing"),
        ({"test_languages": []}, "test_languages is empty"),
        ({"train_languages": []}, "train_languages is empty"),
        ({"test_language": "en"}, "test_language"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    recipe: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    recipe["classification"]["topics"] |= change
    with pytest.raises(ValueError, match=message):
        evaluated(recipe)
    assert not Path(recipe["output"]).exists()
