"""Articles of one language from where they are, as tables of one form: `ARTICLE_COLUMNS`.

Texts are read and written by DuckDB, a row group at a time; only counting sentences calls Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import duckdb
import pyarrow.compute as pc

from common.files import file_written_whole, write_json
from modeling_hmde.segmentation_hmde import replace_surrogates, sentence_spans
from training.corpus.dumps import column_types, dump_to_parquet
from training.corpus.sql import quoted, readable
from training.corpus.tables import ARTICLE_COLUMNS, check_columns, copy_table, row_name

Source = Literal["tables", "wiki40b", "wikipedia"]

_WIKI_COLUMNS = {"wiki40b": ["wikidata_id", "text", "version_id"], "wikipedia": ["id", "title", "text"]}
_WIKI40B_TITLE = r"trim(regexp_extract(text, '_START_ARTICLE_\n([^\n]*)', 1))"
# Headings and paragraphs become lines. What stands before the first marker is the title's.
_WIKI40B_TEXT = (
    r"trim(regexp_replace(regexp_replace(text, '^\s*_START_ARTICLE_\n[^\n]*', ''), "
    r"'\s*(_START_SECTION_|_START_PARAGRAPH_|_NEWLINE_|\n)\s*((_START_SECTION_|_START_PARAGRAPH_|_NEWLINE_)\s*)*', "
    r"chr(10), 'g'), chr(10) || ' ')"
)
_ARTICLE, _CATEGORY = 0, 14  # namespaces
_DUMP_COLUMNS = {  # what is read of each dump, and which rows
    "page": (
        ["page_id", "page_namespace", "page_title", "page_is_redirect"],
        pc.field("page_namespace").isin([_ARTICLE, _CATEGORY]),
    ),
    "page_props": (
        ["pp_page", "pp_propname", "pp_value"],
        pc.field("pp_propname").isin(["wikibase_item", "hiddencat"]),
    ),
    "categorylinks": (["cl_from", "cl_to", "cl_target_id", "cl_type"], pc.field("cl_type") == "page"),
    "linktarget": (["lt_id", "lt_namespace", "lt_title"], pc.field("lt_namespace") == _CATEGORY),
}
_WIKI40B_NAMES = {"zh": "zh-cn"}  # simplified; ask for zh-tw by that name


def article_files(source: Source, articles: str, languages: list[str], snapshot: str) -> dict[str, list[Path]]:
    """The files that hold the articles of each language, fetched from the Hub where `articles` is no folder.

    Raises:
        ValueError: a language has no file, or tables of two kinds; a file is no Parquet file with these columns.
    """
    patterns = {language: _patterns(source, language, snapshot) for language in languages}
    folder = Path(articles)
    if source != "tables" and not folder.is_dir():
        folder = _fetch(articles, [pattern for group in patterns.values() for pattern in group])
    files = {}
    for language, group in patterns.items():
        files[language] = [path for pattern in group for path in sorted(folder.glob(pattern))]
        if not files[language]:
            raise ValueError(f"{folder} has no {' and no '.join(group)}; articles of {language} are needed")
        if source == "tables" and len(files[language]) > 1:
            raise ValueError(f"{folder} has {' and '.join(group)}; keep one of them, joined if each has articles")
        if source != "tables":
            for path in files[language]:
                check_columns(path, _WIKI_COLUMNS[source])
    return files


def _patterns(source: Source, language: str, snapshot: str) -> list[str]:
    if source == "wiki40b":
        return [f"{_WIKI40B_NAMES.get(language, language)}/*.parquet"]
    if source == "wikipedia":
        return [f"{snapshot}.{language}/*.parquet"]
    return [f"{language}.parquet", f"{language}.jsonl"]


def _fetch(repository: str, patterns: list[str]) -> Path:
    """A data set's files from the Hub, which resumes, verifies and shows the progress of what is not there yet."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, repo_type="dataset", allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        wanted = "\n".join(f"  https://huggingface.co/datasets/{repository}/tree/main/{path}" for path in patterns)
        raise ValueError(
            f"{repository} is no folder here and cannot be fetched from the Hub ({type(error).__name__}). Bring these "
            f"files into one folder, each in the subfolder it has there, and name it with --articles:\n{wanted}"
        ) from error


@dataclass(frozen=True)
class ArticleRules:
    """What makes a page an article of the corpus; see `CorpusRecipe` for the fields."""

    source: Source
    min_sentences: int
    maintenance_categories: list[str]
    dev_fraction: float
    test_fraction: float


def write_articles(
    connection: duckdb.DuckDBPyConnection,
    language: str,
    files: list[Path],
    page_categories: Path | None,
    target: Path,
    rules: ArticleRules,
) -> None:
    """Writes the articles of a language, and beside them, as JSON, what was read and why some were dropped.

    Args:
        page_categories: what `write_categories` wrote, None for tables of articles, which hold their categories.

    Raises:
        ValueError: a row is no article of the language, a concept has two articles, or a file is damaged.
    """

    def is_long_enough(text: str) -> bool:
        sentences = islice(sentence_spans(replace_surrogates(text), language), rules.min_sentences)
        return sum(1 for _ in sentences) == rules.min_sentences

    connection.create_function("is_long_enough", is_long_enough, ["VARCHAR"], "BOOLEAN")
    patterns = [f"regexp_full_match(category, {quoted(pattern)})" for pattern in rules.maintenance_categories]
    connection.execute(f"CREATE OR REPLACE MACRO is_maintenance(category) AS {' OR '.join(['false', *patterns])}")
    rows = target.with_name(f"{language}.rows.parquet")
    try:
        if rules.source == "tables":
            pages, counts = _articles_of_table(connection, language, files[0], rows)
        else:
            pages, counts = _articles_of_pages(connection, language, files, page_categories, rules)
        with file_written_whole(target) as partial:
            connection.execute(
                f"""
                COPY (
                    SELECT concept_id, language, title,
                           CASE WHEN starts_with(text, title || chr(10)) THEN substr(text, length(title) + 2)
                                ELSE text END AS text,
                           list_filter(categories, lambda category: NOT is_maintenance(category)) AS categories,
                           source, license, split
                    FROM ({pages}) AS page
                    WHERE is_long_enough(text)
                ) TO {quoted(partial)} (FORMAT parquet, COMPRESSION zstd)
                """
            )
    except (duckdb.BinderException, duckdb.ConversionException, duckdb.InvalidInputException) as error:
        names = ", ".join(map(str, files))
        raise ValueError(f"{names} cannot be read as articles of {rules.source}: {error}; bring them again") from None
    connection.remove_function("is_long_enough")
    rows.unlink(missing_ok=True)
    kept, uncategorized = connection.execute(
        f"SELECT count(*), count(*) FILTER (coalesce(len(categories), 0) = 0) FROM {readable(target)}"
    ).fetchall()[0]
    counts |= {"short": counts.pop("usable") - kept, "kept": kept, "kept_without_category": uncategorized}
    write_json(target.with_suffix(".json"), counts)


def _articles_of_table(
    connection: duckdb.DuckDBPyConnection, language: str, path: Path, rows: Path
) -> tuple[str, dict[str, int]]:
    """A query for the articles of a table, which is checked and copied to `rows`, and how many there are."""
    count = copy_table(path, language, rows)
    twice = connection.execute(
        f"""
        SELECT concept_id, list("row" ORDER BY "row")[:2]
        FROM {readable(rows)} GROUP BY concept_id HAVING count(*) > 1 ORDER BY concept_id LIMIT 1
        """
    ).fetchall()
    for concept_id, indices in twice:
        raise ValueError(f"{row_name(path, *indices)} are both of concept {concept_id}; keep one article of a concept")
    return f"SELECT {', '.join(ARTICLE_COLUMNS)} FROM {readable(rows)}", {"read": count, "usable": count}


def _articles_of_pages(
    connection: duckdb.DuckDBPyConnection,
    language: str,
    files: list[Path],
    page_categories: Path | None,
    rules: ArticleRules,
) -> tuple[str, dict[str, int]]:
    """A query for one article a concept, and how many pages were read, dropped and are left."""
    known = readable(str(page_categories))
    raw = f"read_parquet([{', '.join(map(readable, files))}])"
    if rules.source == "wiki40b":
        keyed = f"SELECT wikidata_id AS concept_id, version_id AS page FROM {raw} WHERE wikidata_id LIKE 'Q%'"
        page = f"SELECT version_id AS page, {_WIKI40B_TITLE} AS title, {_WIKI40B_TEXT} AS text FROM {raw}"
        license_ = "CC-BY-SA-3.0"
    else:
        categorized = f"JOIN {known} AS known ON known.page_id = TRY_CAST(id AS BIGINT)"
        keyed = f"SELECT concept_id, id AS page FROM {raw} {categorized}"
        page = f"SELECT id AS page, title, regexp_replace(trim(text), '\\s*\\n\\s*', chr(10), 'g') AS text FROM {raw}"
        license_ = "CC-BY-SA-4.0"
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE chosen AS SELECT concept_id, min(page) AS page FROM ({keyed}) GROUP BY ALL"
    )
    read, with_concept = _count(connection, f"SELECT 1 FROM {raw}"), _count(connection, keyed)
    usable = _count(connection, "FROM chosen")
    query = f"""
        SELECT concept_id, {quoted(language)} AS language, title, text, coalesce(categories, []) AS categories,
               {quoted(rules.source)} AS source, {quoted(license_)} AS license,
               CASE WHEN draw('split|' || concept_id) % 1000000 < {round(rules.dev_fraction * 1e6)} THEN 'dev'
                    WHEN draw('split|' || concept_id) % 1000000
                         < {round((rules.dev_fraction + rules.test_fraction) * 1e6)} THEN 'test'
                    ELSE 'train' END AS split
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
        ValueError: a concept's articles are in different splits, so that no pair of them is in one.
    """
    torn = connection.execute(
        f"""
        SELECT concept_id, list(split || ' in ' || language ORDER BY language)
        FROM read_parquet([{", ".join(map(readable, articles))}])
        GROUP BY concept_id HAVING count(DISTINCT split) > 1 ORDER BY concept_id LIMIT 1
        """
    ).fetchall()
    for concept_id, splits in torn:
        raise ValueError(f"concept {concept_id} is in the splits {', '.join(splits)}; put all its articles in one")


def write_categories(connection: duckdb.DuckDBPyConnection, dumps: dict[str, Path], target: Path) -> None:
    """Writes page_id, concept_id and categories of the articles of a wiki, and beside it, as JSON, what was counted.

    Hidden categories are left out. Subcategories are not followed, so a cycle of categories changes nothing. Of several
    pages of one concept all are written.

    Args:
        dumps: `page`, `page_props`, `categorylinks` and, since MediaWiki 1.43, `linktarget`, by name.

    Raises:
        ValueError: a dump is damaged, or the links have ids and there is no `linktarget` to name them.
    """
    tables = {}
    counts = {}
    for name, path in dumps.items():
        columns, keep = _DUMP_COLUMNS[name]
        tables[name] = target.with_name(f"{target.stem}.{name}.parquet")
        present = [column for column in columns if column in column_types(path)]
        counts[f"rows_of_{name}"] = dump_to_parquet(path, tables[name], present, keep)["rows"]
    link_columns = column_types(dumps["categorylinks"])
    by_id = "cl_target_id" in link_columns
    if by_id and "linktarget" not in dumps:
        raise ValueError(f"{dumps['categorylinks']} names categories by id; the linktarget dump of that date is needed")
    names = [f"nullif(cl_{column}, '')" for column in ("to",) if f"cl_{column}" in link_columns]
    category = f"coalesce({', '.join(['lt_title'] * by_id + names)}, NULL)"
    targets = f"LEFT JOIN {readable(tables['linktarget'])} ON lt_id = cl_target_id" if by_id else ""
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE concept AS
        SELECT page_id, pp_value AS concept_id
        FROM {readable(tables["page"])} JOIN {readable(tables["page_props"])} ON pp_page = page_id
        WHERE page_namespace = 0 AND page_is_redirect = 0 AND pp_propname = 'wikibase_item';

        CREATE OR REPLACE TEMP TABLE link AS
        SELECT cl_from AS page_id, replace({category}, '_', ' ') AS category
        FROM {readable(tables["categorylinks"])} {targets}
        WHERE cl_from IN (SELECT page_id FROM concept);

        CREATE OR REPLACE TEMP TABLE hidden AS
        SELECT replace(page_title, '_', ' ') AS category
        FROM {readable(tables["page"])} JOIN {readable(tables["page_props"])} ON pp_page = page_id
        WHERE page_namespace = 14 AND pp_propname = 'hiddencat';
        """
    )
    with file_written_whole(target) as partial:
        connection.execute(
            f"""
            COPY (
                SELECT page_id, concept_id, coalesce(categories, []) AS categories
                FROM concept LEFT JOIN (
                    SELECT page_id, list(DISTINCT category ORDER BY category) AS categories
                    FROM link WHERE category IS NOT NULL AND category NOT IN (SELECT category FROM hidden)
                    GROUP BY page_id
                ) AS listed USING (page_id)
            ) TO {quoted(partial)} (FORMAT parquet)
            """
        )
    counts |= {
        "articles": _count(
            connection, f"FROM {readable(tables['page'])} WHERE page_namespace = 0 AND page_is_redirect = 0"
        ),
        "articles_with_concept": _count(connection, "FROM concept"),
        "concepts": _count(connection, "SELECT DISTINCT concept_id FROM concept"),
        "hidden_categories": _count(connection, "FROM hidden"),
        "links_of_articles": _count(connection, "FROM link"),
        "links_without_category": _count(connection, "FROM link WHERE category IS NULL"),
    }
    for path in tables.values():
        path.unlink()
    write_json(target.with_suffix(".json"), counts)


def _count(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    return connection.execute(f"SELECT count(*) FROM ({query})").fetchall()[0][0]
