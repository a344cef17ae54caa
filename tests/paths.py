"""Where the repository lies, and how a test writes a file."""

from __future__ import annotations

import gzip
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def written(path: Path, content: str | bytes) -> Path:
    """A file in a folder of its own, packed if its name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
