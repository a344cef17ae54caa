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
    """
    Raises:
        ValueError: a model is named beside a server; else as in `ask_server` and `Index.search`.
    """
    languages = [code.strip() for code in options.languages.split(",")] if options.languages else None
    asked: dict[str, Any] = {"ranking": options.ranking, "languages": languages, "where": options.where}
    asked |= {"query": options.question, "hits": options.hits}
    if is_address(options.index):
        if options.model is not None:
            raise ValueError(
                f"--model is {options.model}, but {options.index} answers with its own model; leave --model out"
            )
        hits = ask_server(options.index, sentences=options.sentences, text=options.text, **asked)
    else:
        began = time.perf_counter()
        found = opened(options).search(**asked)
        if (seconds := time.perf_counter() - began) > SLOW:
            message = "%.1f s, most of it to load the model; `hmde serve %s` answers sooner"
            logger.warning(message, seconds, options.index)
        hits = [hit.to_dict(options.sentences, options.text) for hit in found]
    show_as_json(hits) if options.json else show(hits)


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
