"""Of which type a saved model is, and fingerprints of it and of whatever else a result depends on."""

from __future__ import annotations

import hashlib
from pathlib import Path

from transformers import AutoConfig

import modeling_hmde


def model_type_of(name: str, model: str) -> str:
    """The type of a saved model, such as hmde or bert.

    Raises:
        ValueError: there is no such model.
    """
    try:
        return AutoConfig.from_pretrained(model).model_type
    except (OSError, ValueError) as error:
        raise ValueError(f"{name}: {model} is no model folder and no name on the Hub that opens: {error}") from error


def fingerprint(*parts: object) -> str:
    """A name for what a result depends on: the same for the same parts, another for others.

    >>> fingerprint("a", 1) == fingerprint("a", 1) != fingerprint("a1")
    True
    """
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def fingerprint_of_model(model: str) -> str:
    """Of all files of a folder, or of the commit that a Hub name stands for."""
    if Path(model).is_dir():
        return fingerprint_of_folder(Path(model))
    return fingerprint(model, getattr(AutoConfig.from_pretrained(model), "_commit_hash", None))


def fingerprint_of_code() -> str:
    """Of the model's code: another version of it may read the same weights otherwise."""
    return fingerprint_of_folder(Path(modeling_hmde.__file__).parent, "*.py")


def fingerprint_of_folder(folder: Path, pattern: str = "*") -> str:
    """Of the names and contents of all files of a folder."""
    files = sorted(path for path in folder.rglob(pattern) if path.is_file())
    return fingerprint(*((str(path.relative_to(folder)), digest(path)) for path in files))


def digest(path: Path) -> str:
    """Of the content of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            found.update(block)
    return found.hexdigest()
