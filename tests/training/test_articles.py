"""Documents drawn from the articles of a corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.data.articles import draw_documents


def test_documents_of_all_languages_take_turns(corpus_folder: Path) -> None:
    drawn = draw_documents(corpus_folder, "train", 6, seed=0)
    assert sorted(language for _, language in drawn) == ["de", "de", "en", "en", "fr", "fr"]
    assert drawn == draw_documents(corpus_folder, "train", 6, seed=0)
    assert drawn != draw_documents(corpus_folder, "train", 6, seed=1)
    assert len(draw_documents(corpus_folder, "train", 1000, seed=0)) == 27, "all that there are"


def test_a_split_without_articles_is_refused(corpus_folder: Path) -> None:
    with pytest.raises(ValueError, match="no article of the split test"):
        draw_documents(corpus_folder, "test", 5, seed=0)
