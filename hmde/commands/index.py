"""`hmde index DOCUMENTS INDEX`: make an index of documents, or bring one up to date.

DOCUMENTS is a folder of files and tables, or one such file; see hmde/documents/documents.py. The command, run again,
encodes only what is new or changed, and removes what is gone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hmde.commands.opening import without_bars
from hmde.commands.options import IndexOptions
from hmde.common.files import write_json
from hmde.documents.documents import Columns, Documents

if TYPE_CHECKING:  # the model's libraries take seconds to import: what can be refused before is refused at once
    from hmde.index.update import Changes


HOW_TO_READ = "how-to-read.json"  # in the folder of an index: the options by which its documents are read


def main(options: IndexOptions) -> None:
    language, columns = how_to_read(options)
    documents = Documents(options.documents, language, columns, options.strict)
    from hmde.index.index import Index
    from hmde.index.precomputed import PrecomputedEmbeddings

    without_bars()
    index = Index(options.index, options.model, dtype=options.dtype, truncation="error" if options.strict else True)
    changes = index.update(
        documents,
        sentences=options.sentences,
        embeddings=PrecomputedEmbeddings(options.embeddings, index.encoder.name) if options.embeddings else None,
        show_progress_bar=True,
    )
    write_json(Path(options.index) / HOW_TO_READ, {"language": language, "columns": asdict(columns)})
    if options.json:
        told = {"unreadable": documents.unreadable, "notes": documents.notes, "left_out": documents.left_out}
        print(json.dumps(changes._asdict() | told))
    else:
        print(described(changes, documents.left_out))


def how_to_read(options: IndexOptions) -> tuple[str | None, Columns]:
    """`language` and `columns` as they are given; what is not given, as the index was made with."""
    file = Path(options.index) / HOW_TO_READ
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"language": None, "columns": {}}
    columns = options.columns if options.columns != Columns() else Columns(**before["columns"])
    language = options.language or before["language"]
    if (language, columns) != (options.language, options.columns):
        print(f"documents are read as {options.index} was made: language {language}, {columns}", file=sys.stderr)
    return language, columns


def described(changes: Changes, left_out: Mapping[str, int]) -> str:
    """The counts of documents, and of the files of the folder that are none.

    >>> from hmde.index.update import Changes
    >>> described(Changes(added=2, changed=0, removed=1, unchanged=7), {})
    '2 added, 0 changed, 1 removed, 7 unchanged'
    >>> print(described(Changes(added=2, changed=0, removed=1, unchanged=7, truncated=1), {"no text": 1, "damaged": 2}))
    2 added, 0 changed, 1 removed, 7 unchanged, 1 truncated
    files left out: 3 (2 damaged, 1 no text)
    """
    counts = ", ".join(f"{count} {name}" for name, count in changes._asdict().items() if count or name != "truncated")
    reasons = ", ".join(
        f"{count} {reason}" for reason, count in sorted(left_out.items(), key=lambda item: (-item[1], item[0]))
    )
    return f"{counts}\nfiles left out: {sum(left_out.values())} ({reasons})" if left_out else counts
