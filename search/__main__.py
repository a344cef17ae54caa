"""Search documents in any language by a question in any other.

    python -m search index DOCUMENTS INDEX --model MODEL
    python -m search query INDEX "a question"
    python -m search postgres INDEX URL

DOCUMENTS is a folder of *.txt, *.md, *.jsonl and *.parquet, or one such file; see search/documents.py. The first
command run again encodes only what is new or changed, and forgets what is gone.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentError
from dataclasses import asdict
from json import dumps
from pathlib import Path

from jsonargparse import auto_cli
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text
from transformers.utils import logging

from common.device import Dtype
from search.documents import Documents
from search.embeddings import Embeddings
from search.index import Changes, Encoder, Hit, Ranking, is_index, open_index, update_index


def main(argv: list[str] | None = None) -> None:
    logging.disable_progress_bar()
    try:
        auto_cli(
            {"index": index, "query": query, "postgres": postgres},
            args=argv,
            as_positional=True,
            exit_on_error=False,
            prog="python -m search",
            description=__doc__,
        )
    except (ArgumentError, ValueError, OSError) as error:
        sys.exit(f"error: {_harmless(str(error))}")


def index(
    documents: str,
    index: str,
    *,
    model: str | None = None,
    language: str | None = None,
    sentences: bool = False,
    embeddings: str | None = None,
    dtype: Dtype = "auto",
    json: bool = False,
) -> None:
    """Make an index of documents, or bring one up to date.

    Args:
        documents: a folder of *.txt, *.md, *.jsonl and *.parquet, or one such file.
        index: the folder to write.
        model: a saved HMDE, folder or Hub name; an index that exists knows its own.
        language: of documents that do not say theirs, as an ISO 639-1 code.
        sentences: keep a vector of every sentence too. Takes several times the room, and answers `late` sooner.
        embeddings: a folder that `python -m search.encode` wrote of these documents; what is found there is not
            encoded again.
        dtype: of weights and activations: auto is bfloat16 where the hardware multiplies it, and float32 elsewhere.
        json: write the changes as JSON.
    """
    if Path(index).resolve().is_relative_to(Path(documents).resolve()):
        raise ValueError(f"{index} lies in {documents} and would index itself; put it elsewhere")
    if model is None:
        if not is_index(index):
            raise ValueError(f"{index} holds no index yet; say which model makes it: --model FOLDER")
        model = open_index(index).model
    changes = update_index(
        index,
        Documents(Path(documents), language),
        Encoder.load(model, dtype),
        sentences=sentences,
        embeddings=Embeddings(embeddings, model) if embeddings else None,
        show_progress_bar=sys.stderr.isatty(),
    )
    print(dumps(changes._asdict()) if json else _describe(changes))


def query(
    index: str,
    question: str,
    *,
    ranking: Ranking = "vector",
    languages: str | None = None,
    hits: int = 5,
    sentences: int = 2,
    model: str | None = None,
    dtype: Dtype = "auto",
    json: bool = False,
) -> None:
    """Show the documents that answer a question best, and their sentences.

    Args:
        index: the folder of an index.
        question: in any language.
        ranking: by the vectors of documents, by words in common (BM25), by both (hybrid), or the best by both again,
            with the vector of the best sentence beside that of the document (late).
        languages: only documents in these, as ISO 639-1 codes with commas between: de,fr.
        hits: documents to show.
        sentences: sentences to show of each, best first.
        model: where the model that made the index is now, if it was moved.
        dtype: of weights and activations: auto is bfloat16 where the hardware multiplies it, and float32 elsewhere.
        json: write the hits as JSON.
    """
    if hits < 1 or sentences < 0:
        raise ValueError("--hits must be at least 1 and --sentences at least 0")
    opened = open_index(index)
    encoder = Encoder.load(model or opened.model, dtype)
    opened.check(encoder)
    found = opened.search(question, encoder, hits, ranking, languages.split(",") if languages else None)
    if json:
        # JSON leaves control characters above 0x7e as they are, and terminals obey some of these.
        text = dumps([_as_json(hit, sentences) for hit in found], ensure_ascii=False, indent=2)
        print(re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text))
        return
    console = Console()
    for rank, hit in enumerate(found, start=1):
        console.print(_as_text(rank, hit, sentences))


def postgres(index: str, url: str) -> None:
    """Copy an index into PostgreSQL with pgvector, in place of what an earlier copy put there.

    Args:
        index: the folder of an index.
        url: of the database: postgresql://user@host/database. A password is best in ~/.pgpass.
    """
    from search.postgres import copy_to_postgres  # needs the extra `postgres`

    print(f"{copy_to_postgres(open_index(index), url)} documents in hmde.documents")


def _describe(changes: Changes) -> str:
    """
    >>> _describe(Changes(added=2, changed=0, removed=1, unchanged=7))
    '2 added, 0 changed, 1 removed, 7 unchanged'
    """
    return ", ".join(f"{count} {name}" for name, count in changes._asdict().items())


def _as_json(hit: Hit, num_sentences: int) -> dict[str, object]:
    document, score, explanation = hit
    return asdict(document) | {
        "score": score,
        "sentences": [
            {**sentence._asdict(), "text": document.text[sentence.begin : sentence.end]}
            for sentence in explanation.sentences[:num_sentences]
        ],
    }


def _as_text(rank: int, hit: Hit, num_sentences: int) -> Group:
    document, score, explanation = hit
    heading = Text.assemble(
        f"{rank}  ", (_harmless(document.title), "bold"), "  ", (_harmless(document.id), "dim"), f"  {score:.3f}"
    )
    sentences = Table.grid(padding=(0, 2))
    for begin, end, sentence_score in explanation.sentences[:num_sentences]:
        text = _harmless(document.text[begin:end])
        sentences.add_row("", Text(f"{sentence_score:+.3f}", style="cyan"), Text(text))
    return Group(heading, sentences, "")


def _harmless(text: str) -> str:
    """Control characters, which a terminal may obey, made visible; white space made spaces.

    >>> _harmless("a\\x1b[2J\\tb\\x9b2J")
    'a\\\\x1b[2J b\\\\x9b2J'
    """
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda match: f"\\x{ord(match[0]):02x}", re.sub(r"[\t\n\r]+", " ", text))


if __name__ == "__main__":
    main()
