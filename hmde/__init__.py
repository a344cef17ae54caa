"""Search your own documents across languages: `from hmde import Document, Documents, Index`, and the command `hmde`.

Imports run down: commands, server, index, documents, release (the released model), common, and modeling_hmde, which
every saved model carries along.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hmde.documents.documents import Document, Documents
    from hmde.index.index import Index

__version__ = "0.2.0"
__all__ = ["Document", "Documents", "Index", "__version__"]

_MODULES = {"Document": "documents.documents", "Documents": "documents.documents", "Index": "index.index"}


def __getattr__(name: str) -> Any:
    """Imports the libraries of a name when it is asked for, not with each module of this package."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hmde.common.extras import missing_extras_named

    with missing_extras_named():
        return getattr(import_module(f"hmde.{_MODULES[name]}"), name)
