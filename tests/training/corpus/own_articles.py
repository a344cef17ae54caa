"""Small tables of articles, as users bring them."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet

from training.corpus import ARTICLE_COLUMNS, main

LANGUAGES = ["de", "en", "fr"]
TEXT = "One sentence. Another one. A third. A fourth one. And a fifth."


def article(concept: str, language: str, categories: list[str], split: str = "train", text: str = TEXT) -> dict:
    values = (concept, language, f"{concept} {language}", text, categories, "test", "CC0-1.0", split)
    return dict(zip(ARTICLE_COLUMNS, values))


def write_articles(folder: Path, articles: list[dict]) -> Path:
    folder.mkdir(exist_ok=True)
    for language in LANGUAGES:
        lines = [json.dumps(row) for row in articles if row["language"] == language]
        (folder / f"{language}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def world() -> list[dict]:
    """Concepts 0-5 are rivers, 6-9 cities; 9 is alone in its split; French lacks the odd ones."""
    return [
        article(f"Q{index}", language, ["river" if index < 6 else "city", "place"], "dev" if index == 9 else "train")
        for index in range(10)
        for language in LANGUAGES
        if language != "fr" or index % 2 == 0
    ]


def run(articles: Path, output: Path, *options: str) -> list[dict]:
    main(["--articles", str(articles), "--output", str(output), "--languages", json.dumps(LANGUAGES), *options])
    columns = duckdb.sql(f"SELECT * FROM '{output}/triples.parquet'")
    return [dict(zip(columns.columns, row)) for row in columns.fetchall()]


def write_table(path: Path, rows: list) -> Path | None:
    """JSON lines or Parquet; None where Parquet cannot hold these rows."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path
    try:
        names = [name for name in ARTICLE_COLUMNS if all(name in row for row in rows)]
        columns = {}
        for name in names:
            values = [row[name] for row in rows]
            whole = {type(value) for value in values} - {type(None)}
            columns[name] = pa.array(values if len(whole) < 2 else values[2:3] * len(rows))
        parquet.write_table(pa.table(columns), path)
    except (TypeError, pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    return path
