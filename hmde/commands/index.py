"""`hmde index DOCUMENTS INDEX`: make an index of documents, or bring one up to date.

DOCUMENTS is a folder of files and tables, or one such file; see hmde/documents/documents.py. The command, run again,
encodes only what is new or changed, and removes what is gone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from hmde.common.quick_imports import quick_imports

from hmde.commands.opening import without_bars
from hmde.commands.options import IndexOptions
from hmde.documents.documents import Documents, check_apart

if TYPE_CHECKING:  # the model's libraries take seconds to import: what can be refused before is refused at once
    from hmde.index.update import Changes


def main(options: IndexOptions) -> None:
    documents = Documents(options.documents, options.language, options.columns, options.strict)
    check_apart(Path(options.index), Path(options.documents))
    with quick_imports():
        from hmde.index.index import Index
        from hmde.index.precomputed import PrecomputedEmbeddings
    without_bars()
    index = Index(options.index, options.model, dtype=options.dtype)
    changes = index.update(
        documents,
        sentences=options.sentences,
        embeddings=PrecomputedEmbeddings(options.embeddings, index.encoder.name) if options.embeddings else None,
        show_progress_bar=True,
    )
    if options.json:
        print(json.dumps(changes._asdict() | {"unreadable": documents.unreadable}))
    else:
        print(described(changes, len(documents.unreadable)))


def described(changes: Changes, num_unreadable: int) -> str:
    """
    >>> from hmde.index.update import Changes
    >>> described(Changes(added=2, changed=0, removed=1, unchanged=7), 0)
    '2 added, 0 changed, 1 removed, 7 unchanged'
    >>> described(Changes(added=2, changed=0, removed=1, unchanged=7), 1)
    '2 added, 0 changed, 1 removed, 7 unchanged; files left out: 1'
    """
    counts = ", ".join(f"{count} {name}" for name, count in changes._asdict().items())
    return f"{counts}; files left out: {num_unreadable}" if num_unreadable else counts
