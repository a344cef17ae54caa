"""The options of the subcommands of `hmde`. Imports nothing heavy, so that the commands show them at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from hmde.common.device import Dtype
from hmde.common.numbers import NonNegativeInt, PositiveInt
from hmde.documents.documents import Columns
from hmde.index import Ranking


@dataclass
class IndexOptions:
    """Make an index of documents, or bring one up to date."""

    documents: str
    """A folder of documents (text, Markdown, HTML, PDF, office files, mail, books and more) and tables (*.jsonl,
    *.parquet), or one such file."""
    index: str
    """The folder to write."""
    model: str | None = None
    """A saved HMDE, folder or Hub name. If not given, an index that exists goes on with its own, and a new one is made
    by the released model."""
    language: str | None = None
    """Language of documents that do not name theirs, as an ISO 639-1 code; `detect` finds it out from the
    text. If not given, it is that with which the index was made, and so are `--columns`."""
    columns: Columns = field(default_factory=Columns)
    """Which columns documents are read from."""
    strict: bool = False
    """End with an error if a file cannot be read, or a document is longer than the model reads. If not, the file is
    named and left out, and the beginning of the document is read."""
    sentences: bool | None = None
    """Keep a vector for every sentence too, for the ranking `late` and to show what matched; `false` for a smaller
    index. If not given, a new index keeps them unless `--embeddings` is given, and an index that exists goes on as it
    began."""
    embeddings: str | None = None
    """A folder that `hmde encode` wrote for these documents, for an index without sentences.
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
    text: bool = False
    """With `--json`, the whole text of each document, too."""
    model: str | None = None
    """Where the model that made the index is now, if it was moved."""
    dtype: Dtype = "float32"
    """The dtype of weights and activations. Weights in float32 are used as they lie on the disk; to convert them takes
    longer than to encode one question."""
    json: bool = False
    """Write the hits as JSON."""


@dataclass
class ServeOptions:
    """Answer over HTTP, and show a page; clients must send the environment's HMDE_TOKEN if there is one."""

    index: str
    """The folder of an index. Its updates are seen within a second."""
    host: str = "127.0.0.1"
    """The address to listen at; 0.0.0.0 lets other machines in."""
    port: PositiveInt = 8000
    """The port to listen at."""
    cors: list[str] = field(default_factory=list)
    """Origins of pages elsewhere that may ask from a browser, [https://example.org]; ['*'] for all."""
    root_path: str = ""
    """The path under which a proxy shows the server: /search."""
    model: str | None = None
    """Where the model that made the index is now, if it was moved."""
    dtype: Dtype = "auto"
    """The dtype of weights and activations; `auto` is bfloat16 if the hardware supports it natively, else float32."""


@dataclass
class EncodeOptions:
    """Write embeddings of a collection of any size as shards of Parquet."""

    documents: str
    """A folder that `hmde index` reads, or one file of it. All are read once before any is encoded."""
    output: str
    """Folder to write."""
    model: str | None = None
    """A saved HMDE, folder or Hub name; the released model if not given."""
    language: str | None = None
    """Language of documents that do not name theirs, as an ISO 639-1 code; `detect` finds it out from the text. An
    index that takes these embeddings needs the same."""
    columns: Columns = field(default_factory=lambda: Columns(id="id"))
    """Which columns documents are read from."""
    strict: bool = False
    """End with an error if a document is longer than the model reads. If not, its beginning is encoded."""
    documents_per_shard: PositiveInt = 1024
    """The command says when a shard is written, and a killed run loses at most one for each process."""
    dtype: Dtype = "auto"
    """The dtype of weights and activations; `auto` is bfloat16 if the hardware supports it natively, else float32."""


@dataclass
class ModelOptions:
    """Put the released model together in a folder, without a network: for `AutoModel` and all that reads folders."""

    folder: str
    """The folder to write."""


@dataclass
class ExportOptions:
    """Write a saved HMDE as ONNX, into its own folder."""

    model: str
    """Folder of the HMDE."""


COMMANDS = {
    "index": IndexOptions,
    "query": QueryOptions,
    "serve": ServeOptions,
    "encode": EncodeOptions,
    "model": ModelOptions,
    "export": ExportOptions,
}
