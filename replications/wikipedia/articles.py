"""Articles of Wikipedia with their concepts and categories, as the tables of which `python -m training.corpus` makes
triples.

    python -m replications.wikipedia.articles --config replications/wikipedia/xlw-4l.yaml [--key value ...]

Reads wiki-40b or Wikipedia, and Wikimedia's SQL dumps, and writes

    <language>.parquet    one article of each concept, with `ARTICLE_COLUMNS`
    statistics.json       what was read, dropped and kept, and what the dumps hold

Finished steps are kept in `<output>.steps` until the end, and a run that was stopped resumes there. DuckDB reads and
writes the texts, a row group at a time; Python is called only to count sentences.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import hmde.common.threads

import duckdb

from hmde.common.command_line import options_from, run
from hmde.common.files import check_is_new, folder_written_whole, locked, write_json
from hmde.common.numbers import PositiveInt, Seed, Share
from hmde.common.records import parquet_columns
from replications.wikipedia.categories import write_categories
from replications.wikipedia.download import fetch_dumps
from training.corpus.articles import define_rules, kept_articles
from training.corpus.database import (
    count_rows,
    database,
    drawn_split,
    quoted,
    read_parquet,
    write_parquet,
)
from training.corpus.steps import open_steps, remove_steps

COLUMNS = {"wiki40b": ["wikidata_id", "text", "version_id"], "wikipedia": ["id", "title", "text"]}
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


@dataclass(kw_only=True)
class WikipediaRecipe:
    """Tables of articles from Wikipedia in several languages."""

    source: Literal["wiki40b", "wikipedia"]
    """wiki40b (google/wiki40b) or wikipedia (wikimedia/wikipedia)."""

    articles: str
    """The data set on the Hub, or a folder of its Parquet files."""

    output: str
    """Folder to write."""

    languages: list[str]
    """ISO 639-1 codes. In YAML, `no` needs quotes."""

    snapshot: str = "20231101"
    """Version of wikimedia/wikipedia."""

    dumps: str = "runs/dumps"
    """Folder of Wikimedia's SQL dumps. Those that are missing are downloaded into it."""

    dump_date: str = "latest"
    """Date of the SQL dumps, as YYYYMMDD, or latest."""

    dump_mirror: str = "https://dumps.wikimedia.org"
    """Address from which the SQL dumps are downloaded."""

    maintenance_categories: list[str] = field(default_factory=list)
    """Regular expressions of categories that do not count, beside the hidden ones."""

    min_sentences: PositiveInt = 5
    """Shorter articles are dropped."""

    drop_short_concepts: bool = False
    """Whether an article that is too short takes all articles of its concept along, as in the authors' code."""

    dev_fraction: Share = 0.01
    """Part of the concepts. What dev and test leave is for training."""

    test_fraction: Share = 0.01
    """Likewise."""

    threads: PositiveInt | None = None
    """Threads of DuckDB; one for each core if not given."""

    memory_limit: str = "4GB"
    """Memory of DuckDB. What exceeds it goes to disk."""

    seed: Seed = 42
    """Seed of the draw of dev and test."""


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(WikipediaRecipe, argv)
    output = Path(recipe.output)
    with locked(output, wait=False):
        check_is_new(output)
        with database(output, recipe.memory_limit, recipe.threads) as connection:
            tables = write_tables(connection, recipe, output)
        with folder_written_whole(output) as folder:
            for language, table in tables.items():
                shutil.copyfile(table, folder / f"{language}.parquet")
            write_json(folder / "statistics.json", statistics_of(tables))
        remove_steps(output)


def write_tables(connection: duckdb.DuckDBPyConnection, recipe: WikipediaRecipe, output: Path) -> dict[str, Path]:
    """Writes the articles of each language to the folder of the steps. Returns their tables."""
    define_rules(connection, recipe.min_sentences, recipe.seed)
    define_maintenance(connection, recipe.maintenance_categories)
    files = article_files(recipe)
    dumps = fetch_dumps(recipe.languages, Path(recipe.dumps), recipe.dump_date, recipe.dump_mirror)
    inputs = [path for paths in files.values() for path in paths]
    inputs += [path for tables in dumps.values() for path in tables.values()]
    steps = open_steps(output, recipe, inputs, Path(__file__).parent)
    tables = {}
    for language in recipe.languages:
        categories, table = (steps / f"{language}.{what}.parquet" for what in ("categories", "articles"))
        if not categories.with_suffix(".json").exists():
            write_categories(connection, dumps[language], categories)
        if not table.with_suffix(".json").exists():
            write_articles(connection, recipe, language, files[language], categories, table)
        tables[language] = table
    if recipe.drop_short_concepts:
        drop_short_concepts(connection, list(tables.values()))
    return tables


def define_maintenance(connection: duckdb.DuckDBPyConnection, patterns: Sequence[str]) -> None:
    """Gives DuckDB `is_maintenance(category)`.

    Raises:
        ValueError: a pattern is no regular expression.
    """
    for pattern in patterns:
        try:
            connection.execute(f"SELECT regexp_full_match('', {quoted(pattern)})")
        except duckdb.Error as error:
            raise ValueError(f"maintenance_categories: {pattern!r} is no pattern: {error}") from None
    matches = [f"regexp_full_match(category, {quoted(pattern)})" for pattern in patterns]
    connection.execute(f"CREATE OR REPLACE MACRO is_maintenance(category) AS {' OR '.join(['false', *matches])}")


def article_files(recipe: WikipediaRecipe) -> dict[str, list[Path]]:
    """The files of each language, downloaded from the Hub if `articles` is no folder.

    Raises:
        ValueError: a language has no file, or a file is no Parquet file with these columns.
    """
    patterns = {
        language: f"{recipe.snapshot}.{language}/*.parquet"
        if recipe.source == "wikipedia"
        else f"{WIKI40B_NAMES.get(language, language)}/*.parquet"
        for language in recipe.languages
    }
    folder = Path(recipe.articles)
    if not folder.is_dir():
        folder = _download(recipe.articles, list(patterns.values()))
    files = {language: sorted(folder.glob(pattern)) for language, pattern in patterns.items()}
    columns = COLUMNS[recipe.source]
    for language, paths in files.items():
        if not paths:
            raise ValueError(f"{folder} has no {patterns[language]}; articles of {language} are needed")
        for path in paths:
            if missing := [name for name in columns if name not in parquet_columns(path)]:
                raise ValueError(f"{path} has no column {', '.join(missing)}; it must have {', '.join(columns)}")
    return files


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


def write_articles(
    connection: duckdb.DuckDBPyConnection,
    recipe: WikipediaRecipe,
    language: str,
    files: list[Path],
    page_categories: Path,
    target: Path,
) -> None:
    """Writes the articles of a language, and beside them, as JSON, how many were read and why some were dropped.

    Args:
        connection: with `define_rules` and `define_maintenance`.
        page_categories: what `write_categories` wrote.

    Raises:
        ValueError: a file is damaged.
    """
    try:
        articles, counts = _articles_of_pages(connection, recipe, language, files, page_categories)
        write_parquet(connection, f"FROM ({articles}) WHERE is_long_enough(text, language)", target, compression="zstd")
        long_enough = f"SELECT concept_id FROM {read_parquet(target)}"
        short = f"SELECT concept_id FROM ({articles}) WHERE concept_id NOT IN ({long_enough})"
        write_parquet(connection, short, short_concepts_of(target))
    except (duckdb.BinderException, duckdb.ConversionException, duckdb.InvalidInputException) as error:
        names = ", ".join(map(str, files))
        fault = f"cannot be read as articles of {recipe.source}: {error}"
        raise ValueError(f"{names} {fault}; download or copy them again") from None
    kept = kept_articles(connection, target)
    usable = counts.pop("usable")
    write_json(target.with_suffix(".json"), counts | {"short": usable - kept["kept"]} | kept)


def _articles_of_pages(
    connection: duckdb.DuckDBPyConnection,
    recipe: WikipediaRecipe,
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
        SELECT concept_id, {quoted(language)} AS language, title, text,
               list_filter(coalesce(categories, []), lambda category: NOT is_maintenance(category)) AS categories,
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


def drop_short_concepts(connection: duckdb.DuckDBPyConnection, tables: Sequence[Path]) -> None:
    """Takes out of the tables of all languages the concepts of which one has an article that is too short."""
    short = read_parquet(*map(short_concepts_of, tables))
    for table in tables:
        counts = json.loads(table.with_suffix(".json").read_text(encoding="utf-8"))
        if "in_short_concept" in counts:
            continue  # done before an interruption
        left = f"FROM {read_parquet(table)} WHERE concept_id NOT IN (FROM {short})"
        write_parquet(connection, left, table, compression="zstd")
        kept = kept_articles(connection, table)
        counts["in_short_concept"] = counts["kept"] - kept["kept"]
        write_json(table.with_suffix(".json"), counts | kept)


def short_concepts_of(table: Path) -> Path:
    """The concepts of the articles that are too short for a table of articles."""
    return table.with_suffix(".short.parquet")


def statistics_of(tables: dict[str, Path]) -> dict[str, dict[str, dict[str, int]]]:
    """What was counted in the articles and in the dumps of each language."""
    return {
        name: {
            language: json.loads(table.with_name(f"{language}.{step}.json").read_text(encoding="utf-8"))
            for language, table in tables.items()
        }
        for name, step in (("read", "articles"), ("dumps", "categories"))
    }


if __name__ == "__main__":
    run(main)
