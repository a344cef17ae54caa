"""Search across languages, in a terminal, over HTTP and in Python: `from search import Document, Documents, Index`.

Imports run upwards in this list: files, documents, bm25 (texts); options (of the commands); encoder (the model);
snapshot (the stored table), precomputed (embeddings made before), highlight (HTML); ranking, update, postgres; index;
server, client; and the commands __main__ and encode_collection.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from search.documents import Document, Documents
    from search.index import Index

__all__ = ["Document", "Documents", "Index"]


def __getattr__(name: str) -> Any:
    """Imports the model's libraries when they are asked for, not with each module of this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("search.index" if name == "Index" else "search.documents"), name)
