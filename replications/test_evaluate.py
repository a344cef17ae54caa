"""Evaluations of sentence encoders: data as they are published, through the whole command, to numbers worked out by
hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replications.evaluate import main
from replications.translation_search import SentenceSystem
from tests.evaluation.running import evaluated
from tests.paths import written

pytestmark = pytest.mark.slow

CAT, DOG, MAT = "The cat sat on the mat.", "Did the dog see it?", "It was warm there!"


def run_main(folder: Path, **tasks: Any) -> dict[str, Any]:
    recipe = {"output": str(folder / "out"), "systems": {"bm25": {"kind": "bm25"}}} | tasks
    return evaluated(recipe, command=main)["tasks"]


def accuracies(result: dict[str, Any], measure: str) -> dict[str, float]:
    return {name: scores[measure] for name, scores in (result["rows"] | result["averages"]).items()}


def test_translations_are_found_as_often_as_counted_by_hand(tmp_path: Path, labse: Path) -> None:
    """A sentence of one language finds the same text in the other: one of three is its translation."""
    for language, texts in (("deu", (CAT, DOG, MAT)), ("eng", (CAT, MAT, DOG))):
        written(tmp_path / "tatoeba" / f"tatoeba.deu-eng.{language}", "".join(f"{text}\n" for text in texts))
    for language in ("fra", "eng"):
        written(tmp_path / "tatoeba" / f"tatoeba.fra-eng.{language}", f"{CAT}\n{DOG}\n")
    found = run_main(
        tmp_path,
        systems={"first": {"kind": "first", "model": str(labse), "pooling": "mean"}},
        translation_search={
            "tatoeba": {
                "format": "replications.datasets.tatoeba", "data": str(tmp_path / "tatoeba"), "measure": "P@1",
                "pairs": ["de-en", "en-de", "fr-en"], "training_languages": ["en", "fr"],
            },
        },
    )  # fmt: skip
    third = pytest.approx(1 / 3)
    assert accuracies(found["tatoeba"]["first"], "P@1") == {
        "de-en": third, "en-de": third, "fr-en": 1.0, "average": pytest.approx(5 / 9),
        "average, training languages": 1.0, "average, held-out languages": third,
    }  # fmt: skip


def test_sentences_are_read_as_queries_on_both_sides() -> None:
    class Queries:
        def encode_queries(self, queries: list[str]) -> list[str]:
            return [f"query: {query}" for query in queries]

    system = SentenceSystem(Queries())
    assert system.encode_documents([CAT], "en") == system.encode_queries([CAT]) == [f"query: {CAT}"]
