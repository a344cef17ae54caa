"""Marks that readers ignore change neither a vector nor where a sentence stands in its text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

MARKED = {
    "القِطَّةُ نَائِمَةٌ. الكَلْبُ يَجْرِي.": "القطة نائمة. الكلب يجري.",
    "הֶחָתוּל יָשֵׁן. הַכֶּלֶב רָץ.": "החתול ישן. הכלב רץ.",
    "Die Kat\u00adze schläft. Der H\u200bund rennt.\ufeff": "Die Katze schläft. Der Hund rennt.",
}


@pytest.mark.parametrize("marked", MARKED)
def test_a_text_with_marks_has_the_vectors_of_the_text_without(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, marked: str
) -> None:
    texts = [marked, MARKED[marked]]
    (with_marks, without), sentences = model.encode_documents(texts, tokenizer, sentences=True)
    np.testing.assert_allclose(with_marks, without, atol=1e-6)
    for text, found in zip(texts, sentences):
        shown = [text[begin:end].strip("\ufeff") for begin, end in found.spans]
        assert shown == [f"{sentence.strip()}." for sentence in text.strip("\ufeff").split(".")[:-1]]
    queries = model.encode_queries(texts, tokenizer)
    np.testing.assert_allclose(queries[0], queries[1], atol=1e-6)


def test_a_saved_tokenizer_leaves_them_out_once(tokenizer: HMDETokenizer, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path)
    again = HMDETokenizer.from_pretrained(tmp_path)
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    assert again("so\u00adft").input_ids == again("soft").input_ids
