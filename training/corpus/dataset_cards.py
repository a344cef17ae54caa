"""The README.md of a corpus on the Hub, from the templates beside this file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

TEMPLATES = Path(__file__).parent / "templates"
HUB_LICENSES = ("cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0")  # licences of texts that have a name on the Hub
SOURCES_SHOWN = 10


def triples_card(statistics: dict[str, Any]) -> str:
    """
    Args:
        statistics: those of `corpus_statistics`.
    """
    licenses = {name.lower() for _, name, _ in statistics["sources"] if name}
    data = DatasetCardData(
        license=licenses.pop() if len(licenses) == 1 and licenses <= {*HUB_LICENSES} else "other",
        language=list(statistics["articles"]),
        task_categories=["sentence-similarity", "feature-extraction"],
        configs=[
            {"config_name": "triples", "data_files": "triples.parquet", "default": True},
            {"config_name": "articles", "data_files": "articles/*.parquet"},
        ],
    )
    sources = most_frequent_sources(statistics["sources"])
    return str(DatasetCard.from_template(data, str(TEMPLATES / "triples.md"), statistics=statistics, sources=sources))


def most_frequent_sources(counts: list[list[Any]]) -> str:
    """Sources with their licences. There may be as many as articles; the most frequent ones are named."""
    frequent = sorted(counts, key=lambda row: -row[2])[:SOURCES_SHOWN]
    shown = sorted(f"{as_markdown(source)}, {as_markdown(name)} ({count})" for source, name, count in frequent)
    others = [f"and {len(counts) - len(shown)} others, see statistics.json"] * (len(counts) > len(shown))
    return "; ".join(shown + others)


def as_markdown(text: str) -> str:
    r"""Markdown that shows the text as it is, on one line.

    >>> print(as_markdown("a_b](x)\n# <i>"))
    a\_b\](x) \# \<i\>
    """
    return re.sub(r"([\\`*_\[\]<>&|#!~$])", r"\\\1", " ".join(text.split()))
