"""How a document is shown: its sentences in their order, marked by how well they answer."""

from __future__ import annotations

import re

import pytest
from lxml import html

from hmde.documents.documents import Document
from hmde.index.highlight import marked
from modeling_hmde import Explanation
from modeling_hmde.attribution_hmde import SentenceScore

TEXT = "  A <cat> sat. It was warm.\nThe dog saw it. "
SPANS = {"A <cat> sat.": 0.1, "It was warm.": 0.3, "The dog saw it.": 0.8}


def explained(scores: dict[str, float]) -> Explanation:
    sentences = [SentenceScore(TEXT.index(text), TEXT.index(text) + len(text), score) for text, score in scores.items()]
    return Explanation(0.5, sorted(sentences, key=lambda sentence: sentence.score, reverse=True))


def test_the_text_stands_there_whole_and_each_sentence_is_marked_above_their_mean() -> None:
    shown = marked(Document("id", "A & B", "en", TEXT), 0.51234, explained(SPANS))
    article = html.fragment_fromstring(shown)
    assert article.findtext("p") is not None
    assert article.find("p").text_content() == TEXT
    assert [mark.text for mark in article.iter("mark")] == [*SPANS]
    shares = [float(re.fullmatch(r"--share: (.*)", mark.get("style"))[1]) for mark in article.iter("mark")]
    assert shares == pytest.approx([0, 0, 0.75])  # the mean is .4
    assert [mark.get("title") for mark in article.iter("mark")] == ["+0.100", "+0.300", "+0.800"]
    assert (article.get("lang"), article.find(".//h3").text) == ("en", "A & B")
    assert article.find(".//span[@class='score']").text == "0.512"


def test_a_sentence_is_marked_by_its_place_between_the_mean_and_the_best() -> None:
    scores = dict(zip(SPANS, (0.8, 0.1, 0.6)))  # the mean is .5
    shown = marked(Document("id", "", None, TEXT), 0.5, explained(scores))
    assert re.findall(r"--share: ([\d.]+)", shown) == ["0.75", "0.00", "0.25"]


def test_where_all_sentences_answer_alike_all_are_marked() -> None:
    shown = marked(Document("id", "", None, TEXT), 0.5, explained(dict.fromkeys(SPANS, 0.5)))
    assert re.findall(r"--share: ([\d.]+)", shown) == ["0.75"] * 3
