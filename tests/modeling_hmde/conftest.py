"""Tokenizers of each of the sentence encoders in turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from modeling_hmde import HMDETokenizer


@pytest.fixture(scope="module")
def make_tokenizer(encoder_folder: Path) -> Callable[..., HMDETokenizer]:
    """A function from options to the tokenizer of each of the sentence encoders in turn."""
    return lambda **options: HMDETokenizer.from_sentence_encoder(str(encoder_folder), **options)


@pytest.fixture(scope="module")
def base(encoder_folder: Path) -> PreTrainedTokenizerFast:
    """The sentence encoder's own tokenizer."""
    return AutoTokenizer.from_pretrained(encoder_folder)


@pytest.fixture(scope="module")
def narrow(make_tokenizer: Callable[..., HMDETokenizer]) -> HMDETokenizer:
    """A tokenizer whose limits are soon met."""
    return make_tokenizer(max_sentences=4, max_sentence_length=6)


@pytest.fixture(scope="module")
def wide(make_tokenizer: Callable[..., HMDETokenizer]) -> HMDETokenizer:
    """A tokenizer whose limits are never met."""
    return make_tokenizer(max_sentences=1000)
