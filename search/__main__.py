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
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import common.quick_imports
import common.terminal
import common.threads
from common.terminal import printable

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text
from transformers.utils import logging

from common.command_line import options_from, run
from common.device import Dtype
from common.numbers import NonNegativeInt, PositiveInt
from search.documents import Columns, Documents, check_apart
from search.index import Index
from search.precomputed import PrecomputedEmbeddings
from search.ranking import Hit, Ranking
from search.snapshot import is_index, open_snapshot
from search.update import Changes

common.quick_imports.finish()


@dataclass
class IndexOptions:
    """Make an index of documents, or bring one up to date."""

    documents: str
    """A folder of *.txt, *.md, *.pdf, *.html, *.docx, *.pptx, *.epub, *.jsonl and *.parquet, or one such file."""
    index: str
    """The folder to write."""
    model: str | None = None
    """A saved HMDE, folder or Hub name; an index that exists knows its own."""
    language: str | None = None
    """Language of documents that do not name theirs, as an ISO 639-1 code; `detect` finds it out from the text."""
    columns: Columns = field(default_factory=Columns)
    """Which columns documents are read from."""
    strict: bool = False
    """End with an error if a file cannot be read. If not, it is named and left out."""
    sentences: bool | None = None
    """Keep a vector for every sentence too, for the ranking `late` and to show what matched; `false` for a smaller
    index. If not given, a new index keeps them, and an index that exists goes on as it began."""
    embeddings: str | None = None
    """A folder that `python -m search.encode_collection` wrote for these documents, for an index without sentences.
    Documents that are found there are not encoded again."""
    dtype: Dtype = "auto"
    """The dtype of weights and activations; `auto` is bfloat16 if the hardware supports it natively, else float32."""
    json: bool = False
    """Write the changes as JSON."""


@dataclass
class QueryOptions:
    """Show the documents that match a query best, and their best sentences."""

    index: str
    """The folder of an index."""
    question: str
    """The query, in any language."""
    ranking: Ranking | None = None
    """`dense` by the vectors of documents, `bm25` by words in common, `hybrid` by both, `late` as `hybrid`, but with
    the vector of the best sentence beside that of the document. If not given, `late` where the index keeps sentences,
    and `dense` elsewhere."""
    languages: str | None = None
    """Only documents in these languages, as ISO 639-1 codes with commas between: de,fr."""
    where: str | None = None
    """Only documents that meet this condition in SQL on metadata, id, title and language: "year > 2020"."""
    hits: PositiveInt = 5
    """Documents to show."""
    sentences: NonNegativeInt = 2
    """Sentences to show of each document, best first."""
    model: str | None = None
    """Where the model that made the index is now, if it was moved."""
    dtype: Dtype = "float32"
    """The dtype of weights and activations. Weights in float32 are used as they lie on the disk; to convert them takes
    longer than to encode one question."""
    json: bool = False
    """Write the hits as JSON."""


@dataclass
class PostgresOptions:
    """Copy an index into PostgreSQL with pgvector, in place of what an earlier copy wrote."""

    index: str
    """The folder of an index."""
    url: str
    """The database: postgresql://user@host/database. A password is best kept in ~/.pgpass."""


@dataclass
class ServeOptions:
    """Answer over HTTP: search, embeddings, reranking, and a page to search in. The environment's HMDE_TOKEN, if there
    is one, is what clients must send."""

    index: str
    """The folder of an index. Its updates are seen at once."""
    host: str = "127.0.0.1"
    """The address to listen at; 0.0.0.0 lets other machines in."""
    port: PositiveInt = 8000
    """The port to listen at."""
    model: str | None = None
    """Where the model that made the index is now, if it was moved."""
    dtype: Dtype = "auto"
    """The dtype of weights and activations; `auto` is bfloat16 if the hardware supports it natively, else float32."""


def main(argv: list[str] | None = None) -> None:
    logging.disable_progress_bar()
    commands = {"index": IndexOptions, "query": QueryOptions, "serve": ServeOptions, "postgres": PostgresOptions}
    description = "Search documents in any language with a query in any other."
    options = options_from(commands, argv, positional=True, prog="python -m search", description=description)
    if isinstance(options, IndexOptions):
        index_documents(options)
    elif isinstance(options, QueryOptions):
        show_hits(options)
    elif isinstance(options, ServeOptions):
        serve_index(options)
    else:
        copy_index(options)


def index_documents(options: IndexOptions) -> None:
    documents = Documents(Path(options.documents), options.language, options.columns, options.strict)
    check_apart(Path(options.index), documents.source)
    if options.model is None and not is_index(options.index):
        raise ValueError(f"{options.index} holds no index yet; say which model makes it: --model FOLDER")
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


def show_hits(options: QueryOptions) -> None:
    index = opened(options)
    languages = options.languages.split(",") if options.languages else None
    hits = index.search(
        options.question, options.hits, ranking=options.ranking, languages=languages, where=options.where
    )
    if options.json:
        # json leaves control characters above 0x7e as they are, and terminals obey some of them.
        text = json.dumps([hit.to_dict(options.sentences) for hit in hits], ensure_ascii=False, indent=2)
        print(re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text))
        return
    console = Console()
    for place, hit in enumerate(hits, start=1):
        console.print(_as_text(place, hit, options.sentences))


def serve_index(options: ServeOptions) -> None:
    from search.server.app import serve  # needs the extra `server`

    serve(opened(options), options.host, options.port, os.environ.get("HMDE_TOKEN"))


def copy_index(options: PostgresOptions) -> None:
    from search.postgres import copy_to_postgres  # needs the extra `postgres`

    print(f"{copy_to_postgres(open_snapshot(options.index), options.url)} documents in hmde.documents")


def opened(options: QueryOptions | ServeOptions) -> Index:
    """
    Raises:
        IndexNotFound: there is no index.
    """
    open_snapshot(options.index)  # so that none is made where the model is named
    return Index(options.index, options.model, dtype=options.dtype)


def _describe(changes: Changes, num_unreadable: int) -> str:
    """
    >>> _describe(Changes(added=2, changed=0, removed=1, unchanged=7), 0)
    '2 added, 0 changed, 1 removed, 7 unchanged'
    >>> _describe(Changes(added=2, changed=0, removed=1, unchanged=7), 1)
    '2 added, 0 changed, 1 removed, 7 unchanged; files left out: 1'
    """
    counts = ", ".join(f"{count} {name}" for name, count in changes._asdict().items())
    return f"{counts}; files left out: {num_unreadable}" if num_unreadable else counts


def _as_text(place: int, hit: Hit, num_sentences: int) -> Group:
    document, score, explanation = hit
    title, id = printable(document.title), printable(document.id)
    heading = Text.assemble(f"{place}  ", (title, "bold"), "  ", (id, "dim"), f"  {score:.3f}")
    for name, value in document.metadata.items():
        heading.append(f"  {name} {printable(str(value))}", "dim")
    sentences = Table.grid(padding=(0, 2))
    for begin, end, sentence_score in explanation.sentences[:num_sentences]:
        text = printable(document.text[begin:end])
        sentences.add_row("", Text(f"{sentence_score:+.3f}", style="cyan"), Text(text))
    return Group(heading, sentences, "")


if __name__ == "__main__":
    run(main)
