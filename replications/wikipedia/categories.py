"""The concept and the categories of each article of a Wikipedia, from Wikimedia's SQL dumps."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow.compute as pc

from hmde.common.files import write_json
from replications.wikipedia.sql_dumps import column_types, dump_to_parquet
from training.corpus.database import count_rows, read_parquet, write_parquet

ARTICLE, CATEGORY = 0, 14  # namespaces of MediaWiki
DUMP_COLUMNS = {  # the columns that are read of each dump, and which rows
    "page": (
        ["page_id", "page_namespace", "page_title", "page_is_redirect"],
        pc.field("page_namespace").isin([ARTICLE, CATEGORY]),
    ),
    "page_props": (
        ["pp_page", "pp_propname", "pp_value"],
        pc.field("pp_propname").isin(["wikibase_item", "hiddencat"]),
    ),
    "categorylinks": (["cl_from", "cl_to", "cl_target_id", "cl_type"], pc.field("cl_type") == "page"),
    "linktarget": (["lt_id", "lt_namespace", "lt_title"], pc.field("lt_namespace") == CATEGORY),
}


def write_categories(connection: duckdb.DuckDBPyConnection, dumps: dict[str, Path], target: Path) -> None:
    """Writes page_id, concept_id and categories of the articles of a wiki, and beside it, as JSON, what was counted.

    Hidden categories are left out. Subcategories are not followed, so a cycle of categories changes nothing. If several
    pages have one concept, all are written.

    Args:
        dumps: `page`, `page_props`, `categorylinks` and, since MediaWiki 1.43, `linktarget`, by name.

    Raises:
        ValueError: a dump is damaged, or the links have ids and there is no `linktarget` to name them.
    """
    tables = {}
    counts = {}
    for name, path in dumps.items():
        columns, keep = DUMP_COLUMNS[name]
        tables[name] = target.with_name(f"{target.stem}.{name}.parquet")
        counts[f"rows_of_{name}"] = dump_to_parquet(path, tables[name], columns, keep)
    link_columns = column_types(dumps["categorylinks"])
    by_id = "cl_target_id" in link_columns
    if by_id and "linktarget" not in dumps:
        raise ValueError(f"{dumps['categorylinks']} names categories by id; the linktarget dump of that date is needed")
    names = ["lt_title"] * by_id + ["nullif(cl_to, '')"] * ("cl_to" in link_columns)
    targets = f"LEFT JOIN {read_parquet(tables['linktarget'])} ON lt_id = cl_target_id" if by_id else ""
    page, page_props = read_parquet(tables["page"]), read_parquet(tables["page_props"])
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE concept AS
        SELECT page_id, pp_value AS concept_id
        FROM {page} JOIN {page_props} ON pp_page = page_id
        WHERE page_namespace = {ARTICLE} AND page_is_redirect = 0 AND pp_propname = 'wikibase_item';

        CREATE OR REPLACE TEMP TABLE link AS
        SELECT cl_from AS page_id, replace(coalesce({", ".join(names)}, NULL), '_', ' ') AS category
        FROM {read_parquet(tables["categorylinks"])} {targets}
        WHERE cl_from IN (SELECT page_id FROM concept);

        CREATE OR REPLACE TEMP TABLE hidden AS
        SELECT replace(page_title, '_', ' ') AS category
        FROM {page} JOIN {page_props} ON pp_page = page_id
        WHERE page_namespace = {CATEGORY} AND pp_propname = 'hiddencat';
        """
    )
    write_parquet(
        connection,
        """
        SELECT page_id, concept_id, coalesce(categories, []) AS categories
        FROM concept LEFT JOIN (
            SELECT page_id, list(DISTINCT category ORDER BY category) AS categories
            FROM link WHERE category IS NOT NULL AND category NOT IN (SELECT category FROM hidden)
            GROUP BY page_id
        ) AS listed USING (page_id)
        """,
        target,
    )
    counts |= {
        "articles": count_rows(connection, f"FROM {page} WHERE page_namespace = {ARTICLE} AND page_is_redirect = 0"),
        "articles_with_concept": count_rows(connection, "FROM concept"),
        "concepts": count_rows(connection, "SELECT DISTINCT concept_id FROM concept"),
        "hidden_categories": count_rows(connection, "FROM hidden"),
        "links_of_articles": count_rows(connection, "FROM link"),
        "links_without_category": count_rows(connection, "FROM link WHERE category IS NULL"),
    }
    for path in tables.values():
        path.unlink()
    write_json(target.with_suffix(".json"), counts)
