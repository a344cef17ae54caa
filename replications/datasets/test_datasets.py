"""Sets of translations in their real layouts, small: what becomes of them, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluation.datasets import module_of
from evaluation.datasets.retrieval_sets import RetrievalSet
from evaluation.recipes import RetrievalTask
from replications.datasets import europarl
from replications.evaluation_recipe import TranslationTask
from replications.translation_search import read
from tests.paths import written

pytestmark = pytest.mark.slow

TATOEBA, EUROPARL = "replications.datasets.tatoeba", "replications.datasets.europarl"


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
    with pytest.raises(ValueError, match=r"deu-eng.deu has 2 lines, tatoeba.deu-eng.eng 1; they must be translations"):
        convert(task, tmp_path / "out")
    with pytest.raises(ValueError, match=r"tatoeba.jpn-eng.jpn is missing"):
        convert(replace(task, pairs=["ja-en"]), tmp_path / "out")


def muse_draw(first: list[str], second: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """What MUSE's load_europarl_data does with the words of sentences, once for both directions."""
    one, other = np.empty(len(first), dtype=object), np.empty(len(second), dtype=object)
    one[:], other[:] = ([text.lower().split() for text in side] for side in (first, second))
    one, indices = np.unique(one, return_index=True)
    other = other[indices]
    other, indices = np.unique(other, return_index=True)
    order = np.random.RandomState(1234).permutation(len(other))
    return one[indices][order], other[order]


def test_europarl_gives_the_sentences_that_muse_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(europarl, "QUERIES", 5)
    monkeypatch.setattr(europarl, "SENTENCES", 30)
    monkeypatch.setattr(europarl, "LINES", 53)
    german = [f"Satz {index % 45} {'Ende' * (index % 3)}" for index in range(50)] + ["satz 1 ende", "b", "b c", "late"]
    english = [f"Sentence {index % 48}" for index in range(50)] + ["Other", "B", "b C", "late"]
    written(tmp_path / "europarl" / "europarl-v7.de-en.de", "".join(line + "\n" for line in german))
    written(tmp_path / "europarl" / "europarl-v7.de-en.en", "".join(line + "\n" for line in english))
    task = RetrievalTask(
        str(tmp_path / "europarl"),
        ["de-en", "en-de"],
        format=EUROPARL,
    )
    convert(task, tmp_path / "out")
    found = sets(tmp_path / "out", task.pairs)
    drawn = dict(zip(("de", "en"), muse_draw(german[:53], english[:53])))
    for pair in task.pairs:
        query_language, document_language = pair.split("-")
        documents = dict(found[pair].documents[document_language])
        assert [text.lower().split() for text in documents.values()] == list(drawn[document_language][:30])
        for row, text in found[pair].queries[query_language].items():
            assert text.lower().split() == drawn[query_language][int(row)]
        assert [*found[pair].qrels] == [str(row) for row in np.random.RandomState(1234).choice(30, 5, replace=False)]
    monkeypatch.setattr(europarl, "SENTENCES", 60)
    with pytest.raises(ValueError, match=r"first 53 lines of .*europarl-v7.de-en.\* have \d\d sentences that are all"):
        convert(task, tmp_path / "out")


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0c", "\r"])
def test_only_a_line_feed_ends_a_sentence(tmp_path: Path, mark: str) -> None:
    for language in ("deu", "eng"):
        written(tmp_path / "tatoeba" / f"tatoeba.deu-eng.{language}", f"One{mark} two.\nThree.\n")
    convert(RetrievalTask(str(tmp_path / "tatoeba"), ["de-en"], format=TATOEBA), tmp_path / "out")
    (found,) = sets(tmp_path / "out", ["de-en"]).values()
    assert list(found.queries["de"].values()) == ["One two.", "Three."]
