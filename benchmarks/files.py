"""Is each page of one's own files found? Asks for every document of an index by one of its sentences.

    python -m search index FILES my-index --model runs/hmde-small
    python -m benchmarks.files --index my-index

The question is the longest sentence of the document. By file format, the table shows in how many cases the first
document found is the right one (the same page, slide or chapter), and in how many it is of the right file. Pages that
say the same, such as those of a file in two formats, count as wrong.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import common.threads

from benchmarks.measure import markdown_table
from common.command_line import options_from, run
from common.numbers import PositiveInt
from search.index import Index
from search.options import Ranking


@dataclass
class FilesBenchmark:
    """Ask for each document by its longest sentence."""

    index: str
    """The folder of an index that keeps sentences."""
    ranking: Ranking = "late"
    """As in `python -m search query`."""
    most: PositiveInt = 200
    """At most so many documents are asked for, of each format, evenly spread."""


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(FilesBenchmark, argv)
    index = Index(benchmark.index)
    if not index.snapshot.keeps_sentences:
        raise ValueError(f"index {benchmark.index} keeps no sentences; make it anew with --sentences true")
    by_format: dict[str, list[dict]] = {}
    for row in index.snapshot.table.search().select(["id", "text", "spans"]).to_list():
        by_format.setdefault(Path(file_of(row["id"])).suffix, []).append(row)
    rows = []
    for ending, documents in sorted(by_format.items()):
        found: Counter[str] = Counter()
        for document in documents[:: -(-len(documents) // benchmark.most)]:
            begin, end = max(document["spans"], key=lambda span: span[1] - span[0])
            (hit,) = index.search(document["text"][begin:end], 1, ranking=benchmark.ranking)
            found["asked"] += 1
            found["first"] += hit.document.id == document["id"]
            found["right file"] += file_of(hit.document.id) == file_of(document["id"])
        files = len({file_of(document["id"]) for document in documents})
        rows.append({"format": ending, "files": files, "documents": len(documents), **found})
    counts = dict.fromkeys(("files", "documents", "asked", "first", "right file"), "d")
    print(markdown_table({"format": "", **counts}, rows))


def file_of(id: str) -> str:
    """
    >>> file_of("a/report.pdf#page=3")
    'a/report.pdf'
    """
    return id.rpartition("#")[0] or id


if __name__ == "__main__":
    run(main)
