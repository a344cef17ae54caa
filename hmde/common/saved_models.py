"""Opens saved models, and reads their types and cards. An error names the model and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import Parameter, signature
from pathlib import Path

import torch
from huggingface_hub import ModelCard
from transformers import AutoConfig

from hmde.common.files import write_text
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


def save_changed(
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    folder: Path,
    start: str,
    name: str,
    heading: str,
    change: str,
) -> None:
    """Save an HMDE that was made of a saved one, with the card of that one, if it has one, and a section more.

    Args:
        start: folder or Hub name of the one that it was made of.
        name: by which the new one is loaded, in the examples of its card.
        heading, change: of the section, and its text.
    """
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if (card := card_of(start)) is not None:
        text = str(card).replace(f'"{start}"', f'"{name}"').rstrip()
        write_text(folder / "README.md", f"{text}\n\n## {heading}\n\n{change}\n")


def card_of(model: str) -> ModelCard | None:
    """The model card of a folder or a Hub name; None where there is none that can be read."""
    try:
        path = Path(model)
        return ModelCard.load(path / "README.md" if path.is_dir() else model)
    except (OSError, ValueError):  # no card, no network, or a README without metadata
        return None
