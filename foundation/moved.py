"""Modules that have moved: importing one by its old name is an error that names the new one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

MOVED = {
    "evaluation.encode": "search.encode",
    "evaluation.saved_models": "foundation.saved_models",
    "training.articles": "training.data.articles",
    "training.batches": "training.data.batches",
    "training.cached_gradients": "training.loop.cached_gradients",
    "training.checkpoints": "training.loop.checkpoints",
    "training.dev_set": "training.data.dev_set",
    "training.distributed": "training.loop.distributed",
    "training.folders": "foundation.files",
    "training.meter": "training.loop.meter",
    "training.momentum": "training.loop.momentum",
    "training.pretrain_objective": "training.objectives.documents",
    "training.sampler": "training.data.sampler",
    "training.sentence_encoder": "training.unpack_e5",
    "training.sentence_vectors": "training.data.sentence_vectors",
}


class RefuseOldNames(MetaPathFinder):
    """Comes first among the finders, and finds nothing."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name in MOVED:
            raise ModuleNotFoundError(f"{name} has moved; it is {MOVED[name]} now", name=name)


def refuse_old_names() -> None:
    """Called by the packages from which a module has moved."""
    if not any(isinstance(finder, RefuseOldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, RefuseOldNames())
