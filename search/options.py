"""The options of `python -m search`. Imports nothing heavy, so that the commands show them at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from common.device import Dtype
from common.numbers import NonNegativeInt, PositiveInt
from search.documents import Columns

Ranking = Literal["dense", "bm25", "hybrid", "late"]


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
    index. If not given, a new index keeps them unless `--embeddings` is given, and an index that exists goes on as it
    began."""
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
    """The folder of an index, or the address of a server, http://127.0.0.1:8000, which answers many times sooner."""
    question: str
    """The query, in any language."""
    ranking: Ranking | None = None
    """`dense` by the vectors of documents, `bm25` by words in common, `hybrid` by both, `late` as `hybrid`, but with
    the vector of the best sentence beside that of the document. If not given, `late` where the index keeps sentences,
    and `dense` elsewhere."""
    languages: str | None = None
    """Only documents in these languages, as ISO 639-1 codes with commas between: de,fr."""
    where: str | None = None
    """Only documents that meet this condition in SQL on metadata, id, title, language and text: "year > 2020"."""
    hits: PositiveInt = 5
    """Documents to show; a server gives at most 100."""
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
    """The folder of an index. Its updates are seen within a second."""
    host: str = "127.0.0.1"
    """The address to listen at; 0.0.0.0 lets other machines in."""
    port: PositiveInt = 8000
    """The port to listen at."""
    model: str | None = None
    """Where the model that made the index is now, if it was moved."""
    dtype: Dtype = "auto"
    """The dtype of weights and activations; `auto` is bfloat16 if the hardware supports it natively, else float32."""
