"""The articles of a language, as tables with `ARTICLE_COLUMNS`.

DuckDB reads and writes the texts, a row group at a time; Python is called only to count sentences.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import duckdb

from hmde.common.files import write_json
from hmde.common.records import where
from modeling_hmde.segmentation_hmde import replace_surrogates, sentence_spans
from training.corpus.article_tables import ARTICLE_COLUMNS, copy_table
from training.corpus.database import count_rows, define_draw, read_parquet, write_parquet
from training.corpus.recipe import CorpusRecipe

SENTENCE_BYTES = (40, 600)  # at least and at most, in UTF-8; what is shorter is a heading, and longer several sentences
VISIBLE = r"'[^\s\p{Z}\p{Cc}\p{Cf}]'"  # a line without such a character has no sentence (segmentation_hmde.py)


def article_files(recipe: CorpusRecipe) -> dict[str, Path]:
    """The table of each language.

    Raises:
        ValueError: a language has none, or two of different kinds.
    """
    folder, files = Path(recipe.articles), {}
    for language in recipe.languages:
        names = [f"{language}.parquet", f"{language}.jsonl"]
        found = [folder / name for name in names if (folder / name).exists()]
        if not found:
            raise ValueError(f"{folder} has no {' and no '.join(names)}; articles of {language} are needed")
        if len(found) > 1:
            raise ValueError(f"{folder} has {' and '.join(names)}; keep one of them, joined if each has articles")
        files[language] = found[0]
    return files


def define_rules(connection: duckdb.DuckDBPyConnection, min_sentences: int, seed: int) -> None:
    """Gives DuckDB `is_long_enough(text, language)`, and the `draw` of the splits."""

    def is_long_enough(text: str, language: str) -> bool:
        sentences = islice(sentence_spans(replace_surrogates(text), language), min_sentences)
        return sum(1 for _ in sentences) == min_sentences

    connection.create_function("is_long_enough", is_long_enough, ["VARCHAR", "VARCHAR"], "BOOLEAN")
    define_draw(connection, seed)


def write_articles(connection: duckdb.DuckDBPyConnection, language: str, file: Path, target: Path) -> None:
    """Writes the articles of a language, and beside them, as JSON, how many were read, and how many were too short.

    Args:
        connection: with `define_rules`.
        file: a table that users bring, which is checked.

    Raises:
        ValueError: a row is no article of the language, a concept has two articles, or the file is damaged.
    """
    rows = target.with_name(f"{language}.rows.parquet")
    read = copy_table(file, language, rows)
    twice = connection.execute(
        f"""
        SELECT concept_id, list("row" ORDER BY "row")[:2]
        FROM {read_parquet(rows)} GROUP BY concept_id HAVING count(*) > 1 ORDER BY concept_id LIMIT 1
        """
    ).fetchall()
    for concept_id, numbers in twice:
        raise ValueError(f"{where(file, *numbers)} are both of concept {concept_id}; keep one article of a concept")
    without_title = "CASE WHEN starts_with(text, title || chr(10)) THEN substr(text, length(title) + 2) ELSE text END"
    query = f"""
        SELECT {", ".join(ARTICLE_COLUMNS)} FROM (
            SELECT * REPLACE ({without_title} AS text)
            FROM {read_parquet(rows)} WHERE is_long_enough(text, language)
        )
    """
    write_parquet(connection, query, target, compression="zstd")
    rows.unlink()
    kept = kept_articles(connection, target)
    write_json(target.with_suffix(".json"), {"read": read, "short": read - kept["kept"]} | kept)


def kept_articles(connection: duckdb.DuckDBPyConnection, table: Path) -> dict[str, int]:
    """How many articles a table has, and how many of these have no category."""
    without_category = f"FROM {read_parquet(table)} WHERE coalesce(len(categories), 0) = 0"
    return {
        "kept": count_rows(connection, f"FROM {read_parquet(table)}"),
        "kept_without_category": count_rows(connection, without_category),
    }


def write_sentences(
    connection: duckdb.DuckDBPyConnection, articles: Path, sentences_per_document: int, target: Path
) -> None:
    """Writes lines of the documents of train in a language, as articles that train the scale of sentences.

    The concept of a line is named by the concept of its document, the number of lines there, and its place among
    them. So two lines are of one concept where documents of one concept have as many lines, as translations line by
    line do. Its category is its document, from which its hard negative comes. The places are drawn alike in all
    languages; a line that is a heading, a long paragraph, blank or there twice is left out.
    """
    query = f"""
        WITH line AS (
            SELECT *, unnest(lines) AS line, generate_subscripts(lines, 1) AS place
            FROM (SELECT *, string_split(text, chr(10)) AS lines FROM {read_parquet(articles)} WHERE split = 'train')
        ),
        placed AS (
            SELECT *, concat(concept_id, '#', len(lines), '.', place) AS sentence_id,
                   count(*) OVER (PARTITION BY concept_id, line) AS copies
            FROM line
        ),
        drawn AS (
            SELECT *, row_number() OVER (PARTITION BY concept_id ORDER BY draw(sentence_id), place) AS draw_rank
            FROM placed
        )
        SELECT sentence_id AS concept_id, language, line AS title, line AS text, [concept_id] AS categories, source,
               license, split
        FROM drawn
        WHERE draw_rank <= {sentences_per_document} AND copies = 1
              AND strlen(line) BETWEEN {SENTENCE_BYTES[0]} AND {SENTENCE_BYTES[1]}
              AND regexp_matches(line, {VISIBLE})
    """
    write_parquet(connection, query, target, compression="zstd")


def check_splits(connection: duckdb.DuckDBPyConnection, articles: list[Path]) -> None:
    """
    Raises:
        ValueError: the articles of a concept are in different splits, so that they make no pair.
    """
    torn = connection.execute(
        f"""
        SELECT concept_id, list(split || ' in ' || language ORDER BY language)
        FROM {read_parquet(*articles)}
        GROUP BY concept_id HAVING count(DISTINCT split) > 1 ORDER BY concept_id LIMIT 1
        """
    ).fetchall()
    for concept_id, splits in torn:
        raise ValueError(f"concept {concept_id} is in the splits {', '.join(splits)}; put all its articles in one")
