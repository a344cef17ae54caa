"""The systems under comparison: texts in, unit vectors or rankings out. They know no data files and no measures.

A system is one of a kind; evaluation/registry.py lists the kinds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import torch

from evaluation.recipes import SystemOptions
from evaluation.registry import SYSTEMS


class System(Protocol):
    """What an evaluation asks of a system. One that ranks documents itself has `rank_pairs` instead."""

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        """(queries, hidden), float32, L2-normalised rows."""

    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        """(documents, hidden), float32, L2-normalised rows. All documents are in one language, an ISO 639-1 code."""


def check_systems(systems: Mapping[str, SystemOptions]) -> None:
    """Find what is wrong with the systems of a recipe before any of them computes.

    Raises:
        ValueError: there is none; a name cannot name a file; or a model cannot be found or is not what its kind says.
    """
    if not systems:
        raise ValueError("systems is empty; name at least one")
    for name, system in systems.items():
        check_name("system", name)
        module_of(system).check(f"system {name}", system)


def check_name(what: str, name: str) -> None:
    """
    Raises:
        ValueError: the name cannot be part of a path.
    """
    if not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(f"{what} {name!r} names files; use letters, digits, '.', '-' and '_' only")


def module_of(system: SystemOptions) -> Any:
    """The module that computes a system's kind."""
    return import_module(SYSTEMS[system.kind].module)


def load_system(system: SystemOptions, dtype: torch.dtype = torch.float32) -> Any:
    """A system ready to encode, on a GPU if there is one.

    Args:
        system: one that `check_systems` let pass.
        dtype: of weights and activations. Vectors are float32 in any case.
    """
    return module_of(system).load(system, dtype)


def l2_normalize(vectors: np.ndarray) -> np.ndarray:
    """Vectors (vectors, hidden), float32, at unit length. A zero vector, which has no direction, stays zero.

    Raises:
        ValueError: a vector is not finite.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise ValueError(f"the vector of text {np.isfinite(lengths).argmin()} is not finite; try dtype float32")
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
