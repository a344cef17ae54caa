"""Search documents in any language with a query in any other.

    python -m search index DOCUMENTS INDEX --model MODEL
    python -m search query INDEX "a question"
    python -m search serve INDEX
    python -m search postgres INDEX URL

DOCUMENTS is a folder of texts, PDF, HTML, DOCX, EPUB and tables, or one such file; see search/documents.py. The first
command, run again, encodes only what is new or changed, and removes what is gone.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import common.terminal
import common.threads
from common.quick_imports import quick_imports
from common.terminal import printable

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from common.command_line import options_from, run
from search.client import ask_server, is_address, languages_asked, token
from search.documents import Documents, check_apart
from search.options import IndexOptions, PostgresOptions, QueryOptions, ServeOptions

if TYPE_CHECKING:  # the model's libraries take seconds to import: only what needs them waits
    from search.index import Index
    from search.update import Changes


def main(argv: list[str] | None = None) -> None:
    commands = {"index": IndexOptions, "query": QueryOptions, "serve": ServeOptions, "postgres": PostgresOptions}
    description = "Search documents in any language with a query in any other."
    options = options_from(commands, argv, positional=True, prog="python -m search", description=description)
    if isinstance(options, IndexOptions):
        index_documents(options)
    elif isinstance(options, QueryOptions):
        hits = ask_server(options) if is_address(options.index) else ask_index(options)
        show_as_json(hits) if options.json else show(hits)
    elif isinstance(options, ServeOptions):
        serve_index(options)
    else:
        copy_index(options)


def index_documents(options: IndexOptions) -> None:
    documents = Documents(options.documents, options.language, options.columns, options.strict)
    check_apart(Path(options.index), Path(options.documents))
    with quick_imports():
        from search.index import Index
        from search.precomputed import PrecomputedEmbeddings
        from search.snapshot import is_index
    if options.model is None and not is_index(options.index):
        raise ValueError(f"{options.index} holds no index yet; say which model makes it: --model FOLDER")
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
        print(_describe(changes, len(documents.unreadable)))


def ask_index(options: QueryOptions) -> list[dict[str, Any]]:
    """The hits of a question, see `Hit.to_dict`."""
    index = opened(options)
    hits = index.search(
        options.question,
        options.hits,
        ranking=options.ranking,
        languages=languages_asked(options),
        where=options.where,
    )
    return [hit.to_dict(options.sentences) for hit in hits]


def show_as_json(hits: list[dict[str, Any]]) -> None:
    # json leaves control characters above 0x7e as they are, and terminals obey some of them.
    text = json.dumps(hits, ensure_ascii=False, indent=2)
    print(re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text))


def show(hits: list[dict[str, Any]]) -> None:
    console = Console()
    for place, hit in enumerate(hits, start=1):
        console.print(_as_text(place, hit))


def serve_index(options: ServeOptions) -> None:
    secret = token()
    check_port(options.host, options.port)
    index = opened(options)
    from search.server.app import serve  # needs the extra `server`

    serve(index, options.host, options.port, secret)


def check_port(host: str, port: int) -> None:
    """
    Raises:
        ValueError: no server can listen there.
    """
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"no server can listen at {host}, port {port} ({error}); name others by --host, --port"
        ) from None


def copy_index(options: PostgresOptions) -> None:
    with quick_imports():
        from search.postgres import copy_to_postgres  # needs the extra `postgres`
        from search.snapshot import open_snapshot
    print(f"{copy_to_postgres(open_snapshot(options.index), options.url)} documents in hmde.documents")


def opened(options: QueryOptions | ServeOptions) -> Index:
    """
    Raises:
        IndexNotFound: there is no index.
    """
    with quick_imports():
        from search.index import Index
        from search.snapshot import open_snapshot
    without_bars()
    open_snapshot(options.index)  # so that none is made where the model is named
    return Index(options.index, options.model, dtype=options.dtype)


def without_bars() -> None:
    """Keeps transformers from showing how it loads weights."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def _describe(changes: Changes, num_unreadable: int) -> str:
    """
    >>> from search.update import Changes
    >>> _describe(Changes(added=2, changed=0, removed=1, unchanged=7), 0)
    '2 added, 0 changed, 1 removed, 7 unchanged'
    >>> _describe(Changes(added=2, changed=0, removed=1, unchanged=7), 1)
    '2 added, 0 changed, 1 removed, 7 unchanged; files left out: 1'
    """
    counts = ", ".join(f"{count} {name}" for name, count in changes._asdict().items())
    return f"{counts}; files left out: {num_unreadable}" if num_unreadable else counts


def _as_text(place: int, hit: Mapping[str, Any]) -> Group:
    title, id = printable(hit["title"]), printable(hit["id"])
    heading = Text.assemble(f"{place}  ", (title, "bold"), "  ", (id, "dim"), f"  {hit['score']:.3f}")
    for name, value in hit["metadata"].items():
        heading.append(f"  {printable(name)} {printable(str(value))}", "dim")
    sentences = Table.grid(padding=(0, 2))
    for sentence in hit["sentences"]:
        sentences.add_row("", Text(f"{sentence['score']:+.3f}", style="cyan"), Text(printable(sentence["text"])))
    return Group(heading, sentences, "")


if __name__ == "__main__":
    run(main)
