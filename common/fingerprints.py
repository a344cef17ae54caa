"""Names for content: the same for the same content, another for any other. Every cache is keyed by them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import AutoConfig

import modeling_hmde


def fingerprint(*parts: object) -> str:
    """A name for what a result depends on.

    >>> fingerprint("a", 1) == fingerprint("a", 1) != fingerprint("a1")
    True
    """
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha256.update(block)
    return sha256.hexdigest()


def fingerprint_of_folder(folder: Path, pattern: str = "*", without: str = "") -> str:
    """Of the names and contents of all files of a folder, hidden ones and the one named `without` aside."""
    files = sorted(path for path in folder.rglob(pattern) if path.is_file() and path.name != without)
    files = [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    return fingerprint(*((str(path.relative_to(folder)), digest(path)) for path in files))


def fingerprint_of_model(model: str) -> str:
    """Of the files of a folder but its card, which changes no vector; or of the commit that a Hub name stands for."""
    if Path(model).is_dir():
        return fingerprint_of_folder(Path(model), without="README.md")
    return fingerprint(model, getattr(AutoConfig.from_pretrained(model), "_commit_hash", None))


def fingerprint_of_weights(weights: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Of names and values."""
    sha256 = hashlib.sha256()
    for name, weight in weights:
        sha256.update(name.encode())
        sha256.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return sha256.hexdigest()[:16]


def fingerprint_of_code() -> str:
    """Of the model's code: another version of it may read the same weights in another way."""
    return fingerprint_of_folder(Path(modeling_hmde.__file__).parent, "*.py")
