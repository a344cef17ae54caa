"""Long texts and large vocabularies cost no more than what is kept of them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import Encoding

from modeling_hmde import HMDETokenizer


@pytest.mark.parametrize("options", [{}, {"segmentation": "chunks"}, {"as_queries": True}], ids=str)
@pytest.mark.parametrize("unit", ["the cat sat. ", "the cat sat\n", "the cat ", "猫", "“", "\x00", "<s>"], ids=ascii)
def test_the_backend_sees_no_more_of_ten_megabytes_than_may_be_kept(
    labse: Path, monkeypatch: pytest.MonkeyPatch, unit: str, options: dict
) -> None:
    """Tokens beyond those kept cost time and memory: the backend must see a small part of the text."""
    as_query = "as_queries" in options
    tokenizer = HMDETokenizer.from_sentence_encoder(str(labse), **({} if as_query else options))
    text = (unit * (10_000_000 // len(unit) + 1))[:10_000_000]
    backend, read = tokenizer._unlimited_backend(), []

    def record(texts: list[str], **options: bool) -> list[Encoding]:
        read.append(sum(map(len, texts)))
        return backend.encode_batch(texts, **options)

    recording = SimpleNamespace(encode_batch=record, encode_batch_fast=record, encode=backend.encode)
    monkeypatch.setattr(tokenizer, "_unlimited_backend", lambda: recording)
    row = tokenizer(text, as_queries=as_query)["input_ids"]
    assert sum(read) < (40_000 if options == {} else 400_000)
    assert len(row) <= tokenizer.model_max_length
    assert row[0] == tokenizer.start_token_id


def test_time_grows_with_the_sentences_that_are_kept_and_not_with_their_square(labse: Path) -> None:
    tokenizer = HMDETokenizer.from_sentence_encoder(str(labse), max_sentences=10_000)
    begin = time.process_time()
    row = tokenizer("the cat sat. " * 10_000)["input_ids"]
    assert time.process_time() - begin < 8  # minutes, if a sentence looked at all before it
    assert row.count(tokenizer.start_token_id) == 10_000


def test_a_saved_vocabulary_is_parsed_once(
    tokenizer: HMDETokenizer, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the tokenizers library. In Python, transformers would take half a second more for XLM-R's."""
    parsed = []
    load = json.load
    monkeypatch.setattr(json, "load", lambda file, **options: parsed.append(file.name) or load(file, **options))
    loaded = HMDETokenizer.from_pretrained(model_folder)
    assert parsed
    assert not [name for name in parsed if name.endswith("/tokenizer.json")]
    assert loaded.added_tokens_decoder == tokenizer.added_tokens_decoder
    assert loaded.special_tokens_map == tokenizer.special_tokens_map
