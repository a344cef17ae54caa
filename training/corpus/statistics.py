"""What a corpus holds, in numbers and as a dataset card."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb

from training.corpus.sql import readable

PAPER_TRIPLES = {  # paper, section 3.1
    ("de", "en", "fr", "it"): 1_100_000,
    ("ar", "el", "en", "fa", "fi", "fr", "hu", "ja", "ms", "ru", "tr", "zh"): 592_000,
}

_SOURCES_SHOWN = 10
_WIKIPEDIA_NOTICE = """
Texts of Wikipedia are by its authors, under CC BY-SA: whoever shares them, or what is made of them, names the source
and keeps the licence.
"""

_CARD = """\
---
license: {licenses}
language: [{languages}]
task_categories: [sentence-similarity, feature-extraction]
configs:
- config_name: triples
  data_files: triples.parquet
  default: true
- config_name: articles
  data_files: articles/*.parquet
---
# Cross-lingual training triples in {num_languages} languages

Documents on the same concept in two languages, each with a hard negative: another document of its language that shares
a category with it. Made by `python -m training.corpus` of HMDE after the recipe of its paper (section 3.1).

`triples.parquet` names documents by `concept_id` and language; `articles/<language>.parquet` holds each text once.
Concepts, not documents, are divided into train, dev and test.

| language | read | kept | in no category | written | characters (median) | characters (90 %) | categories (mean) |
|---|---|---|---|---|---|---|---|
{articles}

{num_triples} triples of {num_concepts} concepts; {unpaired} pairs of languages had no negative for their anchor or were
not drawn{paper}.

| languages | triples |
|---|---|
{pairs}

| split | triples |
|---|---|
{splits}

Sources and licences of the texts: {sources}.
{notice}"""


def statistics_of(
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    recipe: dict[str, Any],
    read: dict[str, dict[str, int]],
    dumps: dict[str, dict[str, int]],
) -> dict[str, Any]:
    """Counts of a written corpus.

    Args:
        folder: of articles and triples.
        read: what was counted when the articles of each language were read.
        dumps: what was counted in the SQL dumps of each language.
    """
    articles, triples = readable(folder / "articles", "*.parquet"), readable(folder / "triples.parquet")
    lengths = connection.execute(
        f"""
        SELECT language, count(*), quantile_disc(length(text), 0.5), quantile_disc(length(text), 0.9),
               round(avg(coalesce(len(categories), 0)), 2)
        FROM {articles} GROUP BY language ORDER BY language
        """
    ).fetchall()
    concepts, pairs = connection.execute(
        f"""
        SELECT count(*), coalesce(sum(languages * (languages - 1) // 2), 0)::BIGINT
        FROM (SELECT count(*) AS languages FROM {articles} GROUP BY concept_id HAVING languages > 1)
        """
    ).fetchall()[0]
    sources = connection.execute(
        f"SELECT source, license, count(*) FROM {articles} GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    num_triples = connection.execute(f"SELECT count(*) FROM {triples}").fetchall()[0][0]
    paper = PAPER_TRIPLES.get(tuple(sorted(recipe["languages"])))
    return {
        "recipe": recipe,
        "articles": {language: count for language, count, *_ in lengths},
        "concepts": concepts,
        "pairs": pairs,
        "pairs_without_triple": pairs - num_triples,
        "triples": _count_by(connection, triples, "split"),
        "triples_by_languages": _count_by(
            connection,
            triples,
            "least(anchor_language, positive_language) || '-' || greatest(anchor_language, positive_language)",
        ),
        "triples_by_anchor": _count_by(connection, triples, "anchor_language"),
        "triples_of_the_paper": paper if recipe["source"] != "tables" else None,
        "triples_in_all": num_triples,
        "read": read,
        "dumps": dumps,
        "characters": {language: {"median": half, "p90": most} for language, _, half, most, _ in lengths},
        "categories_per_article": {language: mean for language, *_, mean in lengths},
        "sources": [list(row) for row in sources],
    }


def _count_by(connection: duckdb.DuckDBPyConnection, table: str, key: str) -> dict[str, int]:
    return dict(connection.execute(f"SELECT {key} AS key, count(*) FROM {table} GROUP BY key ORDER BY key").fetchall())


def dataset_card(statistics: dict[str, Any]) -> str:
    """The README.md of a corpus on the Hub."""
    licenses = sorted({license_.lower() for _, license_, _ in statistics["sources"] if license_})
    known = [license_ for license_ in licenses if license_ in ("cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0")]
    paper = statistics["triples_of_the_paper"]
    return _CARD.format(
        licenses=licenses[0] if licenses == known and len(known) == 1 else "other",
        languages=", ".join(f'"{language}"' for language in statistics["articles"]),
        num_languages=len(statistics["articles"]),
        articles="\n".join(
            f"| {language} | {statistics['read'][language]['read']} | {statistics['read'][language]['kept']} "
            f"| {statistics['read'][language]['kept_without_category']} | {written} "
            f"| {statistics['characters'][language]['median']} | {statistics['characters'][language]['p90']} "
            f"| {statistics['categories_per_article'][language]} |"
            for language, written in statistics["articles"].items()
        ),
        num_triples=statistics["triples_in_all"],
        num_concepts=statistics["concepts"],
        unpaired=statistics["pairs_without_triple"],
        paper=f"; the paper has {paper} triples of these languages" if paper else "",
        pairs="\n".join(f"| {pair} | {count} |" for pair, count in statistics["triples_by_languages"].items()),
        splits="\n".join(f"| {split} | {count} |" for split, count in statistics["triples"].items()),
        notice=_WIKIPEDIA_NOTICE if statistics["recipe"]["source"] != "tables" else "",
        sources=_sources(statistics["sources"]),
    )


def _sources(counts: list[list[Any]]) -> str:
    """The most frequent sources with their licences; there may be as many as articles."""
    frequent = sorted(counts, key=lambda row: -row[2])[:_SOURCES_SHOWN]
    shown = sorted(f"{_as_markdown(source)}, {_as_markdown(name)} ({count})" for source, name, count in frequent)
    others = [f"and {len(counts) - len(shown)} others, see statistics.json"] * (len(counts) > len(shown))
    return "; ".join(shown + others)


def _as_markdown(text: str) -> str:
    r"""Markdown that shows the text as it is, on one line.

    >>> print(_as_markdown("a_b](x)\n# <i>"))
    a\_b\](x) \# \<i\>
    """
    return re.sub(r"([\\`*_\[\]<>&|#!~$])", r"\\\1", " ".join(text.split()))
