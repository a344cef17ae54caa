"""Sentences by NLTK's Punkt, as in the authors' code. Its data cannot be downloaded here, so one is trained."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import nltk
import pytest
from nltk.tokenize import PunktSentenceTokenizer

from modeling_hmde import HMDETokenizer, segmentation_hmde, tokenization_hmde

TEXTS = {
    "en": "The cat met Dr. Smith. It sat\non the mat. Is it warm? Yes.",
    "de": "Die Katze sah den Hund.\nSie lief fort. Das war gestern.",
    "ja": "猫が好きです。犬も好きです。" * 30,
    "invisible": "The cat. \u200b",
    "empty": " ",
}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    segmentation_hmde.english_punkt.cache_clear()
    yield
    segmentation_hmde.english_punkt.cache_clear()


@pytest.fixture
def punkt(monkeypatch: pytest.MonkeyPatch) -> PunktSentenceTokenizer:
    text = " ".join(f"We saw Dr. {name} here. The doctor came." for name in ("Smith", "Jones", "Brown", "White"))
    trained = PunktSentenceTokenizer(text * 20)
    for module in (segmentation_hmde, tokenization_hmde):
        monkeypatch.setattr(module, "english_punkt", lambda: trained)
    return trained


@pytest.mark.parametrize("name", TEXTS)
def test_a_document_has_the_sentences_that_punkt_finds(name: str, punkt: PunktSentenceTokenizer, labse: Path) -> None:
    tokenizer = HMDETokenizer.from_sentence_encoder(
        str(labse), segmentation="punkt", long_sentences="cut", max_sentence_length=16
    )
    expected: list[int] = []
    for sentence in punkt.tokenize(TEXTS[name]):
        if sentence.strip("\u200b "):
            expected += tokenizer(sentence, as_queries=True)["input_ids"]  # one sentence, cut at its end
    if name == "empty":
        expected = tokenizer("", as_queries=True)["input_ids"]
    assert tokenizer(TEXTS[name], language=name)["input_ids"] == expected
    if name in ("en", "ja"):
        assert expected.count(tokenizer.start_token_id) == {"en": 4, "ja": 1}[name]


def test_a_saved_tokenizer_splits_as_before(punkt: PunktSentenceTokenizer, labse: Path, tmp_path: Path) -> None:
    tokenizer = HMDETokenizer.from_sentence_encoder(str(labse), segmentation="punkt")
    tokenizer.save_pretrained(tmp_path)
    again = HMDETokenizer.from_pretrained(tmp_path)
    assert again.segmentation == "punkt"
    assert again(TEXTS["de"])["input_ids"] == tokenizer(TEXTS["de"])["input_ids"]


def test_a_missing_library_or_its_missing_data_are_named_when_the_tokenizer_is_made(
    labse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = "is missing; run pip install nltk and python -m nltk.downloader punkt_tab, or use 'sentences'"
    monkeypatch.setattr(nltk.data, "path", [])
    with pytest.raises(ValueError, match=f"segmentation is 'punkt', but punkt_tab, data of NLTK, {rule}"):
        HMDETokenizer.from_sentence_encoder(str(labse), segmentation="punkt")
    monkeypatch.setitem(sys.modules, "nltk.tokenize", None)
    with pytest.raises(ValueError, match=f"segmentation is 'punkt', but NLTK {rule}"):
        HMDETokenizer.from_sentence_encoder(str(labse), segmentation="punkt")
