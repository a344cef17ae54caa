"""Articles of one's own as a retrieval set: titles seek texts."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from evaluation.datasets.articles import convert
from evaluation.datasets.retrieval_sets import read_retrieval_set
from evaluation.recipes import RetrievalTask


def article(concept: str, title: str, body: str, split: str = "dev") -> dict[str, str]:
    return {"concept_id": concept, "title": title, "text": f"{title}\n{body}", "split": split}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    english = [
        article("moon", "The Moon", "It circles the Earth."),
        article("bread", "Bread", "It is made of flour."),
        article("twin", "Bread", "Another one."),
        article("sun", "The Sun", "It is bright.", split="train"),
    ]
    german = [article("moon", "Der Mond", "Er umkreist die Erde."), article("bread", "Brot", "Es ist aus Mehl.")]
    german[1]["text"] = "Es ist aus Mehl."  # a text need not begin with its title
    (tmp_path / "articles").mkdir()
    (tmp_path / "articles" / "en.jsonl").write_text("".join(json.dumps(row) + "\n" for row in english))
    parquet.write_table(pa.Table.from_pylist(german), tmp_path / "articles" / "de.parquet")
    return tmp_path / "articles"


def test_titles_seek_the_texts_without_them(folder: Path, tmp_path: Path) -> None:
    convert(RetrievalTask(str(folder), ["en-de", "de-en"], split="dev"), tmp_path / "set")
    found = read_retrieval_set(tmp_path / "set", ["en-de", "de-en"], "dev")
    assert dict(found.documents["de"]) == {"moon": "Er umkreist die Erde.", "bread": "Es ist aus Mehl."}
    assert "sun" not in found.documents["en"], "it belongs to another split"
    assert found.judged_queries("en-de") == {"moon": "The Moon"}, "two articles have the other title"
    assert found.judged_queries("de-en") == {"moon": "Der Mond", "bread": "Brot"}
    assert found.judgements("de-en")["bread"] == {"bread": 1}


def test_without_a_split_all_articles_are_there(folder: Path, tmp_path: Path) -> None:
    convert(RetrievalTask(str(folder), ["en-en", "en-all"]), tmp_path / "set")
    found = read_retrieval_set(tmp_path / "set", ["en-en", "en-all"])
    assert set(found.judged_queries("en-en")) == {"moon", "sun"}


def test_texts_seek_themselves_in_the_other_language(folder: Path, tmp_path: Path) -> None:
    convert(RetrievalTask(str(folder), ["en-de"], split="dev"), tmp_path / "set")
    found = read_retrieval_set(tmp_path / "set", ["en-de"], "dev", "documents")
    assert found.judged_queries("en-de") == {"moon": "It circles the Earth.", "bread": "It is made of flour."}


def test_what_is_no_article_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"fr\.jsonl is missing"):
        convert(RetrievalTask(str(folder), ["en-fr"]), tmp_path / "set")
    (folder / "fr.jsonl").write_text('{"concept_id": "moon", "title": "La Lune"}\n')
    with pytest.raises(ValueError, match=r"fr\.jsonl, line 1: is no article; it needs concept_id, title, text"):
        convert(RetrievalTask(str(folder), ["en-fr"]), tmp_path / "set")
