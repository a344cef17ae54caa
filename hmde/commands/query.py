"""`hmde query INDEX "a question"`: the documents that match it best, and their best sentences."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from hmde.commands.opening import opened
from hmde.commands.options import QueryOptions
from hmde.common.command_line import printable
from hmde.server.client import ask_server, is_address

logger = logging.getLogger(__name__)

SLOW = 3.0  # seconds: from then on, a way to faster answers is named


def main(options: QueryOptions) -> None:
    hits = from_server(options) if is_address(options.index) else from_index(options)
    show_as_json(hits) if options.json else show(hits)


def from_server(options: QueryOptions) -> list[dict[str, Any]]:
    """
    Raises:
        ValueError: a model is named; else as in `ask_server`.
    """
    if options.model is not None:
        raise ValueError(
            f"--model is {options.model}, but {options.index} answers with its own model; leave --model out"
        )
    return ask_server(
        options.index,
        query=options.question,
        ranking=options.ranking,
        languages=languages_asked(options),
        where=options.where,
        hits=options.hits,
        sentences=options.sentences,
        text=options.text,
    )


def from_index(options: QueryOptions) -> list[dict[str, Any]]:
    """The hits of a question, see `Hit.to_dict`."""
    began = time.perf_counter()
    hits = opened(options).search(
        options.question,
        options.hits,
        ranking=options.ranking,
        languages=languages_asked(options),
        where=options.where,
    )
    if (seconds := time.perf_counter() - began) > SLOW:
        logger.warning("%.1f s, most of it to load the model; `hmde serve %s` answers sooner", seconds, options.index)
    return [hit.to_dict(options.sentences, options.text) for hit in hits]


def languages_asked(options: QueryOptions) -> list[str] | None:
    """
    >>> languages_asked(QueryOptions("index", "question", languages="de, fr"))
    ['de', 'fr']
    """
    return [code.strip() for code in options.languages.split(",")] if options.languages else None


def show_as_json(hits: list[dict[str, Any]]) -> None:
    # json leaves control characters above 0x7e as they are, and terminals obey some of them.
    text = json.dumps(hits, ensure_ascii=False, indent=2)
    print(re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text))


def show(hits: list[dict[str, Any]]) -> None:
    console = Console()
    for place, hit in enumerate(hits, start=1):
        console.print(as_text(place, hit))


def as_text(place: int, hit: Mapping[str, Any]) -> Group:
    title, id = printable(hit["title"]), printable(hit["id"])
    heading = Text.assemble(f"{place}  ", (title, "bold"), "  ", (id, "dim"), f"  {hit['score']:.3f}")
    heading.append(f"  {printable(hit['heading'])}" if hit["heading"] else "", "dim")
    for name, value in hit["metadata"].items():
        heading.append(f"  {printable(name)} {printable(str(value))}", "dim")
    sentences = Table.grid(padding=(0, 2))
    for sentence in hit["sentences"]:
        sentences.add_row("", Text(f"{sentence['score']:+.3f}", style="cyan"), Text(printable(sentence["text"])))
    return Group(heading, sentences, "")
