"""Search documents in any language by a question in any other.

    python -m search index DOCUMENTS INDEX --model MODEL
    python -m search query INDEX "a question"

DOCUMENTS is a folder of *.txt, *.md, *.jsonl and *.parquet, or one such file; see search/documents.py. The first
command run again encodes only what is new or changed, and forgets what is gone.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text
from transformers.utils import logging

from modeling_hmde.attribution_hmde import Scoring
from search.documents import read_documents
from search.index import Changes, Encoder, Hit, model_of_index, open_index, update_index


def main(argv: list[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    logging.disable_progress_bar()
    try:
        _index(arguments) if arguments.command == "index" else _query(arguments)
    except ValueError as error:
        sys.exit(f"error: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m search", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    index = commands.add_parser("index", help="make an index, or bring it up to date")
    index.add_argument("documents", help="a folder of *.txt, *.md, *.jsonl and *.parquet, or one such file")
    index.add_argument("index", help="the folder to write")
    index.add_argument("--model", help="a saved HMDE; an index that exists knows its own")
    index.add_argument("--language", help="ISO 639-1 code of documents that do not say theirs")
    query = commands.add_parser("query", help="the documents that answer a question best, and their sentences")
    query.add_argument("index", help="the folder of an index")
    query.add_argument("question", help="in any language")
    query.add_argument("--model", help="where the model that made the index is now, if it was moved")
    query.add_argument("--hits", type=int, default=5, help="documents to show (5)")
    query.add_argument("--sentences", type=int, default=2, help="sentences to show of each, best first (2)")
    query.add_argument(
        "--late-interaction", action="store_true", help="rank the nearest documents again, by their best sentence"
    )
    for command in (index, query):
        command.add_argument("--json", action="store_true", help="write JSON")
    return parser


def _index(arguments: argparse.Namespace) -> None:
    if Path(arguments.index).resolve().is_relative_to(Path(arguments.documents).resolve()):
        raise ValueError(f"{arguments.index} lies in {arguments.documents} and would index itself; put it elsewhere")
    documents = read_documents(arguments.documents, arguments.language)
    model = arguments.model or model_of_index(arguments.index)
    if model is None:
        raise ValueError(f"{arguments.index} holds no index yet; say which model makes it: --model FOLDER")
    changes = update_index(arguments.index, documents, Encoder.load(model), show_progress_bar=sys.stderr.isatty())
    if arguments.json:
        print(json.dumps(changes._asdict()))
    else:
        Console().print(_describe(changes))


def _query(arguments: argparse.Namespace) -> None:
    if arguments.hits < 1 or arguments.sentences < 0:
        raise ValueError("--hits must be at least 1 and --sentences at least 0")
    index = open_index(arguments.index)
    encoder = Encoder.load(arguments.model or index.model)
    index.check(encoder)
    scoring: Scoring = "maximum" if arguments.late_interaction else "contribution"
    hits = index.search(arguments.question, encoder, arguments.hits, scoring)
    if arguments.json:
        print(json.dumps([_as_json(hit, arguments.sentences) for hit in hits], ensure_ascii=False, indent=2))
        return
    console = Console()
    for rank, hit in enumerate(hits, start=1):
        console.print(_as_text(rank, hit, arguments.sentences))


def _describe(changes: Changes) -> str:
    """
    >>> _describe(Changes(added=2, changed=0, removed=1, unchanged=7))
    '2 added, 0 changed, 1 removed, 7 unchanged'
    """
    return ", ".join(f"{number} {name}" for name, number in changes._asdict().items())


def _as_json(hit: Hit, num_sentences: int) -> dict[str, object]:
    document, explanation = hit
    return asdict(document) | {
        "score": explanation.score,
        "sentences": [
            {**sentence._asdict(), "text": document.text[sentence.begin : sentence.end]}
            for sentence in explanation.sentences[:num_sentences]
        ],
    }


def _as_text(rank: int, hit: Hit, num_sentences: int) -> Group:
    document, explanation = hit
    heading = Text.assemble(
        f"{rank}  ", (document.title, "bold"), "  ", (document.id, "dim"), f"  {explanation.score:.3f}"
    )
    sentences = Table.grid(padding=(0, 2))
    for begin, end, score in explanation.sentences[:num_sentences]:
        sentences.add_row("", Text(f"{score:+.3f}", style="cyan"), Text(document.text[begin:end]))
    return Group(heading, sentences, "")


if __name__ == "__main__":
    main()
