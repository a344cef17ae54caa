"""What transformers asks about a row: tokens, words and characters, found from each other."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from modeling_hmde import HMDETokenizer
from modeling_hmde.segmentation_hmde import sentence_spans


@pytest.mark.parametrize("padding_side", ["right", "left"])
def test_tokens_words_and_characters_of_a_row_are_found_from_each_other(
    wide: HMDETokenizer, base: PreTrainedTokenizerFast, padding_side: str
) -> None:
    texts = ["The cat sat. Der Hund!", "Le chat dort."]
    encoded = wide(texts, padding=True, padding_side=padding_side, return_offsets_mapping=True, language="en")
    for index, text in enumerate(texts):
        assert encoded.tokens(index) == wide.convert_ids_to_tokens(encoded["input_ids"][index])
        words = [word for word in encoded.word_ids(index) if word is not None]
        assert words == sorted(words)
        sentences = [text[begin:end] for begin, end in sentence_spans(text, "en")]
        assert sorted({*words}) == [*range(sum(len({*base(each).word_ids()} - {None}) for each in sentences))]
        for token, (begin, end) in enumerate(encoded["offset_mapping"][index]):
            special = (begin, end) == (0, 0)
            assert (encoded.sequence_ids(index)[token] is None) == (encoded.word_ids(index)[token] is None) == special
            if special:
                assert encoded.token_to_chars(index, token) is None
                continue
            assert encoded.char_to_token(index, end - 1) is not None
            assert tuple(encoded.token_to_chars(index, token)) == (begin, end)
            first, last = encoded.word_to_tokens(index, encoded.token_to_word(index, token))
            assert first <= token < last
            word = encoded.token_to_word(index, encoded.char_to_token(index, end - 1))
            assert encoded.char_to_word(index, end - 1) == word
            chars = encoded.word_to_chars(index, encoded.token_to_word(index, token))
            assert chars.start <= begin < end <= chars.end
    alone = wide(texts[0])
    assert alone.tokens() == wide.convert_ids_to_tokens(alone["input_ids"])
    assert alone.char_to_token(len(texts[0])) is None
    assert alone.word_to_tokens(1000) is None, "there is no such word"


@pytest.mark.parametrize("options", [{"max_sentence_length": 6}, {"max_sentence_length": 6, "long_sentences": "cut"}])
def test_every_token_of_a_text_that_is_cut_or_split_has_a_word_and_characters_or_none(
    make_tokenizer: Callable[..., HMDETokenizer], options: dict[str, Any]
) -> None:
    text = "The cat sat on the mat. Der Hund sah sie nicht."
    for limit in (5, 9, 100):
        encoded = make_tokenizer(**options)(text, truncation=True, max_length=limit, return_offsets_mapping=True)
        count = len(encoded["input_ids"])
        assert count <= limit
        assert len(encoded.word_ids()) == len(encoded["offset_mapping"]) == len(encoded.sequence_ids()) == count


def test_rows_that_travel_to_another_process_leave_the_tokenizer_behind(wide: HMDETokenizer) -> None:
    encoded = wide(["The cat sat. Der Hund!", "Le chat."], padding=True)
    travelled = pickle.loads(pickle.dumps(encoded))
    assert len(pickle.dumps(encoded)) < len(pickle.dumps(wide))
    for index in range(2):
        assert travelled.tokens(index) == encoded.tokens(index)
        assert travelled.word_ids(index) == encoded.word_ids(index)
        assert travelled.char_to_token(index, 4) == encoded.char_to_token(index, 4) is not None
