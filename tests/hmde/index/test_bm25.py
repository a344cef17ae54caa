"""The terms that BM25 counts, in scripts of all kinds."""

from __future__ import annotations

import unicodedata

import pytest

from hmde.index.bm25 import terms


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("बड़ा कुत्ता", "ne", ["बड़ा", "कुत्ता"]),
        ("কুকুর ঘুমায়", "bn", ["কুকুর", "ঘুমায়"]),
        ("நாய் தூங்குகிறது", None, ["நாய்", "தூங்குகிறது"]),
        ("كَلْبٌ نائم", None, ["كلب", "نائم"]),
        ("כֶּלֶב", "he", ["כלב"]),
        ("m² x_1 -_- ½ don't", "en", ["m2", "x_1", "_", "1", "2", "don", "t"]),
    ],
)
def test_a_word_is_not_divided_at_its_marks(text: str, language: str | None, expected: list[str]) -> None:
    assert terms(text, language) == [unicodedata.normalize("NFC", word) for word in expected]


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("So\u00adfa", "sofa"),
        ("ＡＢＣ１", "abc1"),
        ("Straße", "STRASSE"),
        ("ёлка", "елка"),
        ("ﬁne", "fine"),
        ("ﻛﺘﺎﺏ", "كتاب"),
        ("كتـــاب", "كتاب"),
        ("می\u200cخواهم", "میخواهم"),
        ("ｶﾒﾗ", "カメラ"),
        ("\u200bcat\ufeff", "cat"),
    ],
)
def test_words_that_read_alike_are_the_same_without_a_language(written: str, asked: str) -> None:
    assert terms(written, None) == terms(asked, None)
    assert terms(asked, None)


@pytest.mark.parametrize("text", ["Ein müder Hund, café", "कौन ज़्यादा", "한국어 문장", "がぎぐ"])
def test_letters_and_marks_are_the_same_composed_or_not(text: str) -> None:
    composed, divided = (terms(unicodedata.normalize(form, text), None) for form in ("NFC", "NFD"))
    assert composed == divided
    assert len(composed) == max(len(text.split()), 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ที่นี่มี cat", ["ที่นี่", "นี่มี", "cat"]),
        ("แมวนั่ง", ["แม", "มว", "วนั่", "นั่ง"]),
        ("ที่", ["ที่"]),
        ("猫睡", ["猫睡"]),
        ("猫x", ["猫", "x"]),
        ("\u0301", []),
    ],
)
def test_scripts_without_spaces_give_pairs_of_characters_with_their_marks(text: str, expected: list[str]) -> None:
    assert terms(text, "th") == expected
