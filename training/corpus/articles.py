"""The articles of a language, from your own tables, wiki-40b or Wikipedia, as tables with `ARTICLE_COLUMNS`.

DuckDB reads and writes the texts, a row group at a time; Python is called only to count sentences.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import duckdb

from hmde.common.files import write_json
from hmde.common.records import parquet_columns, where
from modeling_hmde.segmentation_hmde import replace_surrogates, sentence_spans
from training.corpus.article_tables import ARTICLE_COLUMNS, copy_table
from training.corpus.database import count_rows, define_draw, drawn_split, quoted, read_parquet, write_parquet
from training.corpus.recipe import CorpusRecipe

WIKI_COLUMNS = {"wiki40b": ["wikidata_id", "text", "version_id"], "wikipedia": ["id", "title", "text"]}
WIKI40B_NAMES = {"zh": "zh-cn"}  # simplified; ask for zh-tw by that name
WIKI40B_TITLE = r"trim(regexp_extract(text, '_START_ARTICLE_\n([^\n]*)', 1))"
# Paragraphs become lines. A heading is no sentence: it stands before the paragraph that follows, with a blank between,
# as in the authors' code. What stands before the first marker is the title's.
WIKI40B_WITHOUT_TITLE = r"regexp_replace(text, '^\s*_START_ARTICLE_\n[^\n]*', '')"
WIKI40B_HEADINGS = (  # each ends with chr(1), until what follows has come to it
    rf"regexp_replace({WIKI40B_WITHOUT_TITLE}, '\s*_START_SECTION_\s*([^\n]*)\s*', chr(10) || '\1' || chr(1), 'g')"
)
WIKI40B_TEXT = (
    rf"trim(regexp_replace(regexp_replace({WIKI40B_HEADINGS}, '\x01\s*(_START_PARAGRAPH_\s*)?', ' ', 'g'), "
    r"'\s*(_START_PARAGRAPH_|_NEWLINE_|\n)\s*((_START_PARAGRAPH_|_NEWLINE_)\s*)*', chr(10), 'g'), chr(10) || ' ')"
)

SENTENCE_BYTES = (40, 600)  # at least and at most, in UTF-8; what is shorter is a heading, and longer several sentences
VISIBLE = r"'[^\s\p{Z}\p{Cc}\p{Cf}]'"  # a line without such a character has no sentence (segmentation_hmde.py)


# --- The files of each language ---


def article_files(recipe: CorpusRecipe) -> dict[str, list[Path]]:
    """The files that hold the articles of each language, downloaded from the Hub if `articles` is no folder.

    Raises:
        ValueError: a language has no file, or tables of two kinds; a file is no Parquet file with these columns.
    """
    patterns = {language: _patterns(recipe, language) for language in recipe.languages}
    folder = Path(recipe.articles)
    if recipe.source != "tables" and not folder.is_dir():
        folder = _download(recipe.articles, [pattern for group in patterns.values() for pattern in group])
    files = {}
    for language, group in patterns.items():
        files[language] = [path for pattern in group for path in sorted(folder.glob(pattern))]
        if not files[language]:
            raise ValueError(f"{folder} has no {' and no '.join(group)}; articles of {language} are needed")
        if recipe.source == "tables":
            if len(files[language]) > 1:
                raise ValueError(f"{folder} has {' and '.join(group)}; keep one of them, joined if each has articles")
            continue
        for path in files[language]:
            columns = WIKI_COLUMNS[recipe.source]
            if missing := [name for name in columns if name not in parquet_columns(path)]:
                raise ValueError(f"{path} has no column {', '.join(missing)}; it must have {', '.join(columns)}")
    return files


def _patterns(recipe: CorpusRecipe, language: str) -> list[str]:
    if recipe.source == "wiki40b":
        return [f"{WIKI40B_NAMES.get(language, language)}/*.parquet"]
    if recipe.source == "wikipedia":
        return [f"{recipe.snapshot}.{language}/*.parquet"]
    return [f"{language}.parquet", f"{language}.jsonl"]


def _download(repository: str, patterns: list[str]) -> Path:
    """The files of a data set on the Hub; what is here already is not downloaded again."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, repo_type="dataset", allow_patterns=patterns))
    except OSError as error:  # as all errors of the Hub are
        wanted = "\n".join(f"  https://huggingface.co/datasets/{repository}/tree/main/{path}" for path in patterns)
        reason = f"{repository} is no folder here and cannot be downloaded from the Hub ({type(error).__name__})"
        raise ValueError(
            f"{reason}. Bring these files into one folder and name it with --articles:\n{wanted}"
        ) from error


# --- Which articles are kept ---


def define_rules(connection: duckdb.DuckDBPyConnection, recipe: CorpusRecipe) -> None:
    """Gives DuckDB `is_long_enough(text, language)` and `is_maintenance(category)`, and the `draw` of the splits.

    Raises:
        ValueError: a maintenance category is no regular expression.
    """

    def is_long_enough(text: str, language: str) -> bool:
        sentences = islice(sentence_spans(replace_surrogates(text), language), recipe.min_sentences)
        return sum(1 for _ in sentences) == recipe.min_sentences

    for pattern in recipe.maintenance_categories:
        try:
            connection.execute(f"SELECT regexp_full_match('', {quoted(pattern)})")
        except duckdb.Error as error:
            raise ValueError(f"maintenance_categories: {pattern!r} is no pattern: {error}") from None
    matches = [f"regexp_full_match(category, {quoted(pattern)})" for pattern in recipe.maintenance_categories]
    connection.execute(f"CREATE OR REPLACE MACRO is_maintenance(category) AS {' OR '.join(['false', *matches])}")
    connection.create_function("is_long_enough", is_long_enough, ["VARCHAR", "VARCHAR"], "BOOLEAN")
    define_draw(connection, recipe.seed)


def write_articles(
    connection: duckdb.DuckDBPyConnection,
    recipe: CorpusRecipe,
    language: str,
    files: list[Path],
    page_categories: Path | None,
    target: Path,
) -> None:
    """Writes the articles of a language, and beside them, as JSON, how many were read and why some were dropped.

    Args:
        connection: with `define_rules`.
        page_categories: what `write_categories` wrote; None for your own tables, which hold their categories.

    Raises:
        ValueError: a row is no article of the language, a concept has two articles, or a file is damaged.
    """
    rows = target.with_name(f"{language}.rows.parquet")
    try:
        if page_categories is None:
            articles, counts = _articles_of_table(connection, language, files[0], rows)
        else:
            articles, counts = _articles_of_pages(connection, recipe, language, files, page_categories)
        query = f"""
            SELECT concept_id, language, title,
                   CASE WHEN starts_with(text, title || chr(10)) THEN substr(text, length(title) + 2)
                        ELSE text END AS text,
                   list_filter(categories, lambda category: NOT is_maintenance(category)) AS categories,
                   source, license, split
            FROM ({articles}) AS article
            WHERE is_long_enough(text, language)
        """
        write_parquet(connection, query, target, compression="zstd")
        if recipe.drop_short_concepts:
            long_enough = f"SELECT concept_id FROM {read_parquet(target)}"
            short = f"SELECT concept_id FROM ({articles}) WHERE concept_id NOT IN ({long_enough})"
            write_parquet(connection, short, short_concepts_of(target))
    except (duckdb.BinderException, duckdb.ConversionException, duckdb.InvalidInputException) as error:
        names = ", ".join(map(str, files))
        fault = f"cannot be read as articles of {recipe.source}: {error}"
        raise ValueError(f"{names} {fault}; download or copy them again") from None
    rows.unlink(missing_ok=True)
    kept = kept_articles(connection, target)
    usable = counts.pop("usable")
    write_json(target.with_suffix(".json"), counts | {"short": usable - kept["kept"]} | kept)


def kept_articles(connection: duckdb.DuckDBPyConnection, table: Path) -> dict[str, int]:
    without_category = f"FROM {read_parquet(table)} WHERE coalesce(len(categories), 0) = 0"
    return {
        "kept": count_rows(connection, f"FROM {read_parquet(table)}"),
        "kept_without_category": count_rows(connection, without_category),
    }


def drop_short_concepts(connection: duckdb.DuckDBPyConnection, articles: Sequence[Path]) -> None:
    """Takes out of the tables of all languages the concepts of which one has an article that is too short."""
    short = read_parquet(*map(short_concepts_of, articles))
    for table in articles:
        counts = json.loads(table.with_suffix(".json").read_text(encoding="utf-8"))
        if "in_short_concept" in counts:
            continue  # done before an interruption
        left = f"FROM {read_parquet(table)} WHERE concept_id NOT IN (FROM {short})"
        write_parquet(connection, left, table, compression="zstd")
        kept = kept_articles(connection, table)
        counts["in_short_concept"] = counts["kept"] - kept["kept"]
        write_json(table.with_suffix(".json"), counts | kept)


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


def short_concepts_of(table: Path) -> Path:
    """The concepts of the articles that are too short for a table of articles."""
    return table.with_suffix(".short.parquet")


def _articles_of_table(
    connection: duckdb.DuckDBPyConnection, language: str, path: Path, rows: Path
) -> tuple[str, dict[str, int]]:
    """A query for the articles of a table, which is checked and copied to `rows`, and how many there are."""
    count = copy_table(path, language, rows)
    twice = connection.execute(
        f"""
        SELECT concept_id, list("row" ORDER BY "row")[:2]
        FROM {read_parquet(rows)} GROUP BY concept_id HAVING count(*) > 1 ORDER BY concept_id LIMIT 1
        """
    ).fetchall()
    for concept_id, numbers in twice:
        raise ValueError(f"{where(path, *numbers)} are both of concept {concept_id}; keep one article of a concept")
    return f"SELECT {', '.join(ARTICLE_COLUMNS)} FROM {read_parquet(rows)}", {"read": count, "usable": count}


def _articles_of_pages(
    connection: duckdb.DuckDBPyConnection,
    recipe: CorpusRecipe,
    language: str,
    files: list[Path],
    page_categories: Path,
) -> tuple[str, dict[str, int]]:
    """A query for one article a concept, and how many pages were read, dropped and are left."""
    known = read_parquet(page_categories)
    raw = read_parquet(*files)
    if recipe.source == "wiki40b":
        keyed = f"SELECT wikidata_id AS concept_id, version_id AS page FROM {raw} WHERE wikidata_id LIKE 'Q%'"
        page = f"SELECT version_id AS page, {WIKI40B_TITLE} AS title, {WIKI40B_TEXT} AS text FROM {raw}"
        license_ = "CC-BY-SA-3.0"
    else:
        categorized = f"JOIN {known} AS known ON known.page_id = TRY_CAST(id AS BIGINT)"
        keyed = f"SELECT concept_id, id AS page FROM {raw} {categorized}"
        page = f"SELECT id AS page, title, regexp_replace(trim(text), '\\s*\\n\\s*', chr(10), 'g') AS text FROM {raw}"
        license_ = "CC-BY-SA-4.0"
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE chosen AS SELECT concept_id, min(page) AS page FROM ({keyed}) GROUP BY ALL"
    )
    read, with_concept = count_rows(connection, f"SELECT 1 FROM {raw}"), count_rows(connection, keyed)
    usable = count_rows(connection, "FROM chosen")
    query = f"""
        SELECT concept_id, {quoted(language)} AS language, title, text, coalesce(categories, []) AS categories,
               {quoted(recipe.source)} AS source, {quoted(license_)} AS license,
               {drawn_split(recipe.dev_fraction, recipe.test_fraction)} AS split
        FROM ({page}) AS page
        JOIN chosen USING (page)
        LEFT JOIN (SELECT concept_id, min_by(categories, page_id) AS categories FROM {known}
                   GROUP BY concept_id) AS known USING (concept_id)
    """
    return query, {
        "read": read,
        "without_concept": read - with_concept,
        "duplicate_concept": with_concept - usable,
        "usable": usable,
    }


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
