"""What is shown of a hit: a passage around the best sentence, places in two countings, parts of a file together."""

from __future__ import annotations

from pathlib import Path

import pytest

from hmde.documents.documents import Document
from hmde.index.encoder import Encoder
from hmde.index.hits import SNIPPET_CHARACTERS, Hit, file_of
from hmde.index.index import Index
from modeling_hmde import Explanation
from modeling_hmde.attribution_hmde import SentenceScore


def hit(sentences: list[str], scores: list[float]) -> Hit:
    text, spans = "\n".join(sentences), []
    for sentence, score in zip(sentences, scores):
        begin = text.index(sentence)
        spans.append(SentenceScore(begin, begin + len(sentence), score))
    best_first = sorted(spans, key=lambda span: -span.score)
    return Hit(Document("a.pdf#page=3", "A", "en", text, {"year": 1}), 0.5, Explanation(0.5, best_first))


def test_a_snippet_is_the_best_sentence_with_those_around_it() -> None:
    sentences = [f"Sentence {number:02} of a text that is longer than a snippet may be." for number in range(40)]
    found = hit(sentences, [1.0 if number == 20 else 0.9 if number == 21 else 0.1 for number in range(40)])
    shown = found.to_dict(1)
    snippet = shown["snippet"]
    assert SNIPPET_CHARACTERS - 70 < len(snippet["text"]) <= SNIPPET_CHARACTERS
    assert snippet["text"] == found.document.text[snippet["begin"] : snippet["end"]]
    assert [snippet["text"][begin:end] for begin, end in snippet["marks"]] == sentences[20:22]
    assert (shown["file"], shown["place"], shown["metadata"]) == ("a.pdf", "page 3", {"year": 1})
    assert "text" not in shown
    assert found.to_dict(text=True)["text"] == found.document.text


@pytest.mark.lancedb
def test_a_hit_stands_under_the_heading_above_its_best_sentence(tmp_path: Path, encoder: Encoder) -> None:
    text = "the end of one.\nTwo\nThe cat sat on the mat."
    index = Index(tmp_path / "index", encoder)
    headings = ((0, "One"), (16, "Two"))
    index.add([Document("a.md#part=2", "A", "en", text, headings=headings), Document("b", "B", "en", "The dog.")])
    hits = [hit.to_dict() for hit in index.search("The cat sat on the mat.")]
    assert [(hit["place"], hit["heading"]) for hit in hits] == [("part 2", "Two"), ("", "")]
    assert index.add([Document("a.md#part=2", "A", "en", text, headings=((0, "Another"),))]).changed == 1
    assert index.search("The cat sat on the mat.", 1)[0].to_dict()["heading"] == "Another"


def test_a_sentence_longer_than_a_snippet_is_cut_at_a_space() -> None:
    snippet = hit(["word " * 200 + "end."], [1.0]).to_dict()["snippet"]
    assert snippet["text"].endswith("word")
    assert len(snippet["text"]) <= SNIPPET_CHARACTERS
    assert snippet["marks"] == [[0, len(snippet["text"])]]


def test_places_are_counted_in_characters_and_as_javascript_counts() -> None:
    (sentence,) = hit(["😀😀 one.", "Two 😀."], [0.1, 1.0]).to_dict(1)["sentences"]
    assert (sentence["begin"], sentence["end"]) == (8, 14)
    assert sentence["utf16"] == {"begin": 10, "end": 17}


@pytest.mark.lancedb
def test_parts_of_a_file_are_one_hit_and_pages_of_answers_follow_one_another(tmp_path: Path, encoder: Encoder) -> None:
    index = Index(tmp_path / "index", encoder)
    index.add(
        [Document(f"book.pdf#page={page}", "", None, f"The cat {page}.") for page in range(1, 7)]
        + [Document(f"rows.jsonl#{row}", "", None, f"The cat {row}.") for row in range(1, 3)]
    )
    hits = index.search("The cat", 10)
    files = [hit.document.id.partition("#page")[0] for hit in hits]
    assert sorted(files) == ["book.pdf", "rows.jsonl#1", "rows.jsonl#2"]
    (book,) = (hit for hit in hits if hit.document.id.startswith("book"))
    assert [part.score for part in book.parts] == sorted((part.score for part in book.parts), reverse=True)
    assert (len(book.parts), max(part.score for part in book.parts) <= book.score) == (3, True)
    paged = [index.search("The cat", 1, offset=offset)[0].document.id for offset in range(3)]
    assert paged == [hit.document.id for hit in hits]
    assert index.search("The cat", 1, offset=3) == []


@pytest.mark.lancedb
def test_no_hit_stands_on_two_pages_of_answers_and_none_on_no_page(tmp_path: Path, encoder: Encoder) -> None:
    words = ["cat", "dog", "sun", "mat", "moon"]
    texts = [f"The {words[row % 5]} {words[row % 3]} {row % 7}. The {words[row % 4]}." for row in range(120)]
    texts += ["The cat."] * 60  # of one file, before all others
    ids = [f"rows.jsonl#{row}" for row in range(120)] + [f"cat.pdf#page={page}" for page in range(60)]
    index = Index(tmp_path / "index", encoder)
    index.add([Document(id, "", "en", text) for id, text in zip(ids, texts)])
    pages = [index.search("The cat", 10, offset=offset) for offset in range(0, 130, 10)]
    found = [file_of(hit.document.id) for page in pages for hit in page]
    assert len(found) == 121
    assert sorted(found) == sorted({"cat.pdf", *ids[:120]})
