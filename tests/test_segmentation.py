"""Sentence spans: where they may stand, whatever the text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st

from modeling_hmde.segmentation_hmde import replace_surrogates, sentence_spans

LINE_BREAKS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
PROSE = st.lists(
    st.sampled_from(
        ["Dr. ", "He said. ", "No! ", "3.14", "。", "！", "नमस्ते।", "etc.", " ", "\t", "\u3000", *LINE_BREAKS]
    )
    | st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=5)
).map("".join)
LANGUAGES = st.sampled_from([None, "en", "de", "zh", "ja", "th", "hi", "ar", "pt-BR", "zh_Hant", "xx", "", "nonsense"])


def sentences(text: str, language: str | None = None) -> list[str]:
    return [text[begin:end] for begin, end in sentence_spans(text, language)]


@given(PROSE, LANGUAGES)
def test_sentences_cover_all_that_is_not_white_space_in_order_and_once(text: str, language: str | None) -> None:
    spans = list(sentence_spans(text, language))
    between = [0, *(place for span in spans for place in span), len(text)]
    assert between == sorted(between)
    gaps = [text[begin:end] for begin, end in zip(between[::2], between[1::2], strict=True)]
    assert not "".join(gaps).strip()


@given(PROSE, LANGUAGES)
def test_no_sentence_is_empty_or_begins_or_ends_with_white_space(text: str, language: str | None) -> None:
    for sentence in sentences(text, language):
        assert sentence
        assert sentence == sentence.strip()


@pytest.mark.parametrize("line_break", LINE_BREAKS, ids=ascii)
def test_every_line_break_of_unicode_ends_a_sentence(line_break: str) -> None:
    assert sentences(f"one heading{line_break}and the text below it") == ["one heading", "and the text below it"]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Dr. Smith came. He left.", ["Dr. Smith came.", "He left."]),
        ("de", "Das ist z. B. so. Ja.", ["Das ist z. B. so.", "Ja."]),
        ("zh", "猫在睡觉。狗看着它！", ["猫在睡觉。", "狗看着它！"]),
        ("ja", "猫が寝ている。犬が見ている。", ["猫が寝ている。", "犬が見ている。"]),
        ("hi", "बिल्ली सो रही है। कुत्ता देखता है।", ["बिल्ली सो रही है।", "कुत्ता देखता है।"]),
        (None, "One. 二。Three.", ["One.", "二。", "Three."]),
    ],
)
def test_sentences_end_where_the_language_ends_them(language: str | None, text: str, expected: list[str]) -> None:
    assert sentences(text, language) == expected


def test_the_region_of_a_language_is_ignored() -> None:
    text = "Das ist z. B. so. Ja."
    assert sentences(text, "de-AT") == sentences(text, "DE_at") == sentences(text, "de")


def test_an_unknown_language_is_split_by_general_rules() -> None:
    assert sentences("One. Two.", "no such language") == ["One.", "Two."]


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\t\u3000\u2029 \x85"], ids=ascii)
def test_white_space_has_no_sentence(text: str) -> None:
    assert sentences(text) == []


def test_only_the_lines_that_are_read_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    lines_split = []

    def segment(language: str, line: str) -> list[str]:
        lines_split.append(line)
        return [line]

    monkeypatch.setattr(sentencex, "segment", segment)
    spans: Iterator[tuple[int, int]] = sentence_spans("a line\n" * 1000)
    assert len(list(islice(spans, 3))) == 3
    assert len(lines_split) == 3


@given(st.text(alphabet=st.characters(categories=["Cs", "Ll", "So"])))
def test_replaced_surrogates_leave_a_text_of_the_same_length_that_has_a_utf_8_form(text: str) -> None:
    replaced = replace_surrogates(text)
    assert len(replaced) == len(text)
    replaced.encode()
    assert all(new == old or "\ud800" <= old <= "\udfff" for new, old in zip(replaced, text, strict=True))
