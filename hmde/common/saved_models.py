"""Opens saved models, and reads their types. An error names the model and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import Parameter, signature

import torch
from transformers import AutoConfig

from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDETokenizer

TRIAL = "A text."


@contextmanager
def opening(model: str, option: str = "") -> Iterator[None]:
    """Within, a saved model is loaded.

    Args:
        model: folder or Hub name.
        option: that names the model, for the error.

    Raises:
        ValueError: it does not open.
    """
    try:
        yield
    except Exception as error:  # on damaged folders, the libraries raise errors of all kinds
        option = option and f"{option}: "
        reason = str(error) or repr(error)
        raise ValueError(f"{option}{model} does not open, as a folder or as a name on the Hub: {reason}") from error


def model_type_of(option: str, model: str) -> str:
    """The type of a saved model, such as hmde or bert. Arguments and errors as in `opening`."""
    with opening(model, option):
        return AutoConfig.from_pretrained(model, trust_remote_code=False).model_type  # or it asks on the terminal


def check_is_hmde(option: str, model: str) -> None:
    """Arguments as in `opening`.

    Raises:
        ValueError: there is no such model, or it is no HMDE.
    """
    if model_type_of(option, model) != HMDEConfig.model_type:
        raise ValueError(f"{option}: {model} is no HMDE; make one of it with training/pretrain.py")


def load_hmde(model: str, dtype: torch.dtype) -> tuple[HMDEForDocumentEmbedding, HMDETokenizer]:
    """A saved HMDE and its tokenizer. Arguments and errors as in `opening`."""
    with opening(model):
        tokenizer = HMDETokenizer.from_pretrained(model)
        loaded = HMDEForDocumentEmbedding.from_pretrained(model, dtype=dtype)
        for encode in (loaded.encode_queries, loaded.encode_documents):
            encode([TRIAL], tokenizer)  # what does not fit together, or is not finite, is found here
        return loaded, tokenizer


def tokenizer_options() -> list[str]:
    """The names of the options of an HMDETokenizer, such as its prompts."""
    options = signature(HMDETokenizer).parameters.items()
    return [name for name, option in options if option.kind is Parameter.KEYWORD_ONLY]
