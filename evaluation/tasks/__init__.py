"""Tasks: retrieval and classification of documents, from vectors to scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass
class SystemRun:
    """One system on one task.

    Args:
        output: folder of the evaluation.
        task, system: their names.
        cache_key: of all that the system's vectors depend on.
        document_cache_key: of all that its vectors of documents depend on; systems that differ in their queries share
            them.
    """

    output: Path
    task: str
    system: str
    cache_key: str
    document_cache_key: str

    @property
    def cache(self) -> Path:
        """The folder of vectors and indexes."""
        return self.output / "cache"

    @property
    def bar(self) -> str:
        """The name of progress bars."""
        return f"{self.task}, {self.system}"
