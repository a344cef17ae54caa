"""What a saved model is: its type, and its card."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import ModelCard
from huggingface_hub.errors import HFValidationError
from transformers import AutoConfig


def model_type_of(name: str, model: str) -> str:
    """The type of a saved model, such as hmde or bert.

    Args:
        name: of the option that names the model, for the error.
        model: folder or Hub name.

    Raises:
        ValueError: there is no such model.
    """
    try:
        return AutoConfig.from_pretrained(model).model_type
    except (OSError, ValueError) as error:
        raise ValueError(f"{name}: {model} is no model folder and no name on the Hub that opens: {error}") from error


def card_of(model: str) -> ModelCard | None:
    """The model card of a folder or a Hub name; None where there is none that can be read."""
    try:
        path = Path(model)
        return ModelCard.load(path / "README.md" if path.is_dir() else model)
    except (OSError, ValueError, HFValidationError):  # no card, no network, or a README without metadata
        return None
