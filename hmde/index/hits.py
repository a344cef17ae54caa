"""What is shown of the documents that a ranking found: the parts of a file together, and the best sentences of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from hmde.documents.documents import Document
from hmde.index.encoder import Encoder, cut
from hmde.index.snapshot import Snapshot
from modeling_hmde import Explanation
from modeling_hmde.attribution_hmde import DocumentSentences, score_sentences

SNIPPET_CHARACTERS = 300  # about; a sentence that is longer is cut at a space
MOST_PARTS = 3  # of a file that are shown beside its best one

# A part of a file, as hmde/documents names it: `book.epub#chapter=3&part=2`.
_PART = re.compile(r"(?P<file>.+)#(?P<place>[a-z]+=\d+(&[a-z]+=\d+)*)", re.DOTALL)


class Snippet(NamedTuple):
    """A passage of a text, `text[begin:end]`, and the sentences in it that match best, as (begin, end) in the text."""

    begin: int
    end: int
    marks: list[tuple[int, int]]


class Hit(NamedTuple):
    """A document, its score in the ranking that was asked for, how well its sentences match the query, and other parts
    of the same file that were found, best first."""

    document: Document
    score: float
    explanation: Explanation
    parts: Sequence[Hit] = ()

    def snippet(self) -> Snippet:
        """The best sentence with those around it, up to SNIPPET_CHARACTERS."""
        text, best = self.document.text, self.explanation.sentences[0]
        spans = [(sentence.begin, sentence.end) for sentence in self.explanation.sentences]  # best first
        begin, end = best.begin, best.end
        while wider := [
            span
            for span in spans
            if (span[1] <= begin or span[0] >= end) and max(end, span[1]) - min(begin, span[0]) <= SNIPPET_CHARACTERS
        ]:
            nearest = min(wider, key=lambda span: max(begin - span[1], span[0] - end))
            begin, end = min(begin, nearest[0]), max(end, nearest[1])
        if end - begin > SNIPPET_CHARACTERS:
            space = text.rfind(" ", begin + SNIPPET_CHARACTERS // 2, begin + SNIPPET_CHARACTERS)
            end = begin + SNIPPET_CHARACTERS if space < 0 else space
        marks = [(sentence.begin, min(sentence.end, end)) for sentence in self.explanation.sentences[:2]]
        return Snippet(begin, end, sorted(mark for mark in marks if begin <= mark[0] < mark[1] <= end))

    def heading(self) -> str:
        """That under which the best sentence stands; empty if there is none."""
        best = self.explanation.sentences[0].begin
        return next((heading for begin, heading in reversed(self.document.headings) if begin <= best), "")

    def to_dict(self, num_sentences: int | None = None, text: bool = False) -> dict[str, Any]:
        """What JSON shows of a hit: id, title, language, metadata, the file and the place in it, the heading above the
        best sentence, score, a snippet, and the best sentences. Begin and end are counted in characters (code points)
        of the document's text; under `utf16` in its UTF-16 units, as JavaScript, Java and C# count.

        Args:
            num_sentences: at most; all if None.
            text: with the whole text.
        """
        document, snippet = self.document, self.snippet()
        shown = replace(document, text="").__dict__ | {
            "file": file_of(document.id),
            "place": place_in_file(document.id),
            "heading": self.heading(),
        }
        del shown["text"], shown["headings"]
        sentences = [
            {**sentence._asdict(), **_place(document.text, *sentence[:2])}
            for sentence in self.explanation.sentences[:num_sentences]
        ]
        passage = _place(document.text, snippet.begin, snippet.end)
        passage |= {"marks": [[begin - snippet.begin, end - snippet.begin] for begin, end in snippet.marks]}
        shown |= {"score": self.score, "snippet": passage, "sentences": sentences}
        if text:
            shown["text"] = document.text
        return shown | {"parts": [part.to_dict(num_sentences, text) for part in self.parts]}


def file_of(id: str) -> str:
    """
    >>> file_of("a/manual.pdf#page=3"), file_of("rows.jsonl#3")
    ('a/manual.pdf', 'rows.jsonl#3')
    """
    part = _PART.fullmatch(id)
    return part["file"] if part else id


def place_in_file(id: str) -> str:
    """
    >>> place_in_file("book.epub#chapter=3&part=2"), place_in_file("notes.txt")
    ('chapter 3 part 2', '')
    """
    part = _PART.fullmatch(id)
    return re.sub("[=&]", " ", part["place"]) if part else ""


def hits_of(
    index: Snapshot, encoder: Encoder, vector: np.ndarray, scores: Mapping[str, float], hits: slice
) -> list[Hit]:
    """Ranked documents as hits, the parts of a file together at the place of the best one.

    Args:
        vector: (hidden,), of the query.
        scores: by id, best first.
        hits: which of them.
    """
    files: dict[str, list[str]] = {}
    for id in scores:
        files.setdefault(file_of(id), []).append(id)
    shown = [ids[: 1 + MOST_PARTS] for ids in list(files.values())[hits]]
    ids = [id for group in shown for id in group]
    sentences = sentences_of(index, ids, encoder)
    found: dict[str, Hit] = {}
    for document, own in zip(index.documents(ids), sentences):
        asked = torch.from_numpy(cut(vector, own.vectors.shape[-1]))  # as the vectors of the sentences are
        found[document.id] = Hit(document, scores[document.id], score_sentences(asked, own))
    return [found[best]._replace(parts=[found[id] for id in others]) for best, *others in shown]


def sentences_of(index: Snapshot, ids: Sequence[str], encoder: Encoder) -> list[DocumentSentences]:
    """The sentences of documents; encoded where the index keeps none."""
    return index.sentences(ids) if index.keeps_sentences else encoder.encode_sentences(index.documents(ids))


def _place(text: str, begin: int, end: int) -> dict[str, Any]:
    before = len(text[:begin].encode("utf-16-le")) // 2
    passage = text[begin:end]
    utf16 = {"begin": before, "end": before + len(passage.encode("utf-16-le")) // 2}
    return {"begin": begin, "end": end, "utf16": utf16, "text": passage}
