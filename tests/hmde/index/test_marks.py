"""Marks that readers ignore change neither a vector nor where a sentence stands in its text."""

from __future__ import annotations

import numpy as np
import pytest

from hmde.documents.documents import Document
from hmde.index.encoder import Encoder

MARKED = {
    "القِطَّةُ نَائِمَةٌ. الكَلْبُ يَجْرِي.": "القطة نائمة. الكلب يجري.",
    "הֶחָתוּל יָשֵׁן. הַכֶּלֶב רָץ.": "החתול ישן. הכלב רץ.",
    "Die Kat\u00adze schläft. Der H\u200bund rennt.\ufeff": "Die Katze schläft. Der Hund rennt.",
}


@pytest.mark.parametrize("marked", MARKED)
def test_a_text_with_marks_has_the_vectors_of_the_text_without(encoder: Encoder, marked: str) -> None:
    documents = [Document("a", "", None, text) for text in (marked, MARKED[marked])]
    (with_marks, without), sentences = encoder.encode_with_sentences(documents)
    np.testing.assert_allclose(with_marks, without, atol=1e-6)
    for document, found in zip(documents, sentences):
        shown = [document.text[begin:end].strip("\ufeff") for begin, end in found.spans]
        assert shown == [f"{sentence.strip()}." for sentence in document.text.strip("\ufeff").split(".")[:-1]]
    queries = encoder.encode_queries([marked, MARKED[marked]])
    np.testing.assert_allclose(queries[0], queries[1], atol=1e-6)
