"""Sets of translations in their real layouts, small: what becomes of them, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.datasets import module_of
from evaluation.datasets.retrieval_sets import RetrievalSet
from evaluation.recipes import RetrievalTask
from replications.evaluation_recipe import TranslationTask
from replications.translation_search import read
from tests.paths import written

pytestmark = pytest.mark.slow

TATOEBA = "replications.datasets.tatoeba"


def sets(folder: Path, pairs: list[str]) -> dict[str, RetrievalSet]:
    """The set of each pair, in a folder of its own."""
    return read(TranslationTask(str(folder), pairs))


def convert(task: RetrievalTask, output: Path) -> None:
    module_of(task).convert(task, output)


def test_tatoeba_becomes_sentences_of_each_pair(tmp_path: Path) -> None:
    for code, lines in (("deu", "Hallo.\nJa.\n"), ("cmn", "你好。\n"), ("pes", "سلام\n")):
        written(tmp_path / "tatoeba" / f"tatoeba.{code}-eng.{code}", lines)
        written(tmp_path / "tatoeba" / f"tatoeba.{code}-eng.eng", "Hello.\nYes.\n" if code == "deu" else "Hello.\n")
    task = RetrievalTask(str(tmp_path / "tatoeba"), ["de-en", "en-de", "zh-en", "en-fa"], format=TATOEBA)
    convert(task, tmp_path / "out")
    found = sets(tmp_path / "out", task.pairs)
    assert found["de-en"].queries["de"] == {"0": "Hallo.", "1": "Ja."}
    assert dict(found["en-de"].documents["de"]) == {"0": "Hallo.", "1": "Ja."}
    assert found["en-de"].qrels == {"0": {"0": 1}, "1": {"1": 1}}
    assert dict(found["zh-en"].documents["en"]) == {"0": "Hello."}
    assert dict(found["en-fa"].documents["fa"]) == {"0": "سلام"}
    written(tmp_path / "tatoeba" / "tatoeba.deu-eng.eng", "Hello.\n")
    with pytest.raises(ValueError, match=r"deu-eng.deu has 2 lines, tatoeba.deu-eng.eng has 1 lines; they must"):
        convert(task, tmp_path / "out")
    with pytest.raises(ValueError, match=r"tatoeba.jpn-eng.jpn is missing"):
        convert(replace(task, pairs=["ja-en"]), tmp_path / "out")


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0c", "\r"])
def test_only_a_line_feed_ends_a_sentence(tmp_path: Path, mark: str) -> None:
    for language in ("deu", "eng"):
        written(tmp_path / "tatoeba" / f"tatoeba.deu-eng.{language}", f"One{mark} two.\nThree.\n")
    convert(RetrievalTask(str(tmp_path / "tatoeba"), ["de-en"], format=TATOEBA), tmp_path / "out")
    (found,) = sets(tmp_path / "out", ["de-en"]).values()
    assert list(found.queries["de"].values()) == ["One two.", "Three."]
