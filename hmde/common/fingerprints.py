"""Fingerprints: hashes of content, from which all cache keys are made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hmde.common.files import files_below

if TYPE_CHECKING:
    import torch

MODEL_CODE = Path(__file__).parents[2] / "modeling_hmde"  # what the folder of a model ships


def fingerprint(*parts: object) -> str:
    """A hash of everything that a result depends on.

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
    """Hashes the names and contents of all files of a folder, except hidden ones and the one named `without`. Links to
    files and folders are followed."""
    found = files_below(folder, lambda path: path.name.startswith(".")) if folder.is_dir() else ()
    files = sorted(path for path in found if path.is_file() and path.match(pattern) and path.name != without)
    return fingerprint(*((str(path.relative_to(folder)), digest(path)) for path in files))


def fingerprint_of_model(model: str) -> str:
    """Hashes the files of a folder except its card, which changes no vector; for a Hub name, name and commit."""
    if Path(model).is_dir():
        return fingerprint_of_folder(Path(model), without="README.md")
    # It takes seconds to import, and few fingerprints need it.
    from transformers.utils.hub import cached_file, extract_commit_hash

    names = ("config.json", "modules.json")  # of transformers, and of sentence-transformers alone
    files = (cached_file(model, name, _raise_exceptions_for_missing_entries=False) for name in names)
    return fingerprint(model, extract_commit_hash(next(filter(None, files), None), None))


def fingerprint_of_weights(weights: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Hashes names and values."""
    import torch

    sha256 = hashlib.sha256()
    for name, weight in weights:
        sha256.update(name.encode())
        sha256.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return sha256.hexdigest()[:16]


def fingerprint_of_code() -> str:
    """Hashes the model's code, since another version of it may use the same weights in another way."""
    return fingerprint_of_folder(MODEL_CODE, "*.py")
