"""Three small Wikipedias, as SQL dumps, wiki-40b and wikimedia/wikipedia, all in the real formats."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet

from replications.wikipedia import articles

CREATE = {
    "page": """`page_id` int(8) unsigned NOT NULL AUTO_INCREMENT,
  `page_namespace` int(11) NOT NULL DEFAULT 0,
  `page_title` varbinary(255) NOT NULL DEFAULT '',
  `page_is_redirect` tinyint(1) unsigned NOT NULL DEFAULT 0,
  `page_random` double unsigned NOT NULL DEFAULT 0,
  `page_lang` varbinary(35) DEFAULT NULL""",
    "page_props": """`pp_page` int(8) NOT NULL,
  `pp_propname` varbinary(60) NOT NULL,
  `pp_value` blob NOT NULL,
  `pp_sortkey` float DEFAULT NULL""",
    "categorylinks": """`cl_from` int(8) unsigned NOT NULL DEFAULT 0,
  `cl_to` varbinary(255) NOT NULL DEFAULT '',
  `cl_sortkey` varbinary(230) NOT NULL DEFAULT '',
  `cl_timestamp` timestamp NOT NULL DEFAULT current_timestamp(),
  `cl_type` enum('page','subcat','file') NOT NULL DEFAULT 'page'""",
    "categorylinks by id": """`cl_from` int(8) unsigned NOT NULL DEFAULT 0,
  `cl_sortkey` varbinary(230) NOT NULL DEFAULT '',
  `cl_type` enum('page','subcat','file') NOT NULL DEFAULT 'page',
  `cl_collation_id` smallint(5) unsigned NOT NULL DEFAULT 0,
  `cl_target_id` bigint(20) unsigned NOT NULL""",
    "linktarget": """`lt_id` bigint(20) unsigned NOT NULL AUTO_INCREMENT,
  `lt_namespace` int(11) NOT NULL,
  `lt_title` varbinary(255) NOT NULL""",
}
ESCAPES = {0: b"\\0", 10: b"\\n", 13: b"\\r", 26: b"\\Z", 34: b'\\"', 39: b"\\'", 92: b"\\\\"}
SORTKEY = bytes(range(256)) + b"'),(1,'"


def literal(value: object) -> bytes:
    """What mysqldump writes for a value."""
    if value is None:
        return b"NULL"
    if isinstance(value, (int, float)):
        return str(value).encode()
    raw = value.encode() if isinstance(value, str) else value
    return b"'" + b"".join(ESCAPES.get(byte, bytes([byte])) for byte in raw) + b"'"


def write_dump(path: Path, create: str, rows: list[tuple], rows_per_insert: int = 3, between: bytes = b",") -> Path:
    table = path.name.split("-")[2].removesuffix(".sql.gz").encode()
    parts = [
        b"-- MariaDB dump 10.19  Distrib 10.11.6-MariaDB\n--\n\n/*!40101 SET NAMES utf8mb4 */;\n",
        b"DROP TABLE IF EXISTS `" + table + b"`;\nCREATE TABLE `" + table + b"` (\n  " + create.encode(),
        b",\n  PRIMARY KEY (`x`)\n) ENGINE=InnoDB DEFAULT CHARSET=binary;\n\nLOCK TABLES `" + table + b"` WRITE;\n",
        b"/*!40000 ALTER TABLE `" + table + b"` DISABLE KEYS */;\n",
    ]
    for begin in range(0, len(rows), rows_per_insert):
        values = [b"(" + b",".join(map(literal, row)) + b")" for row in rows[begin : begin + rows_per_insert]]
        parts.append(b"INSERT INTO `" + table + b"` VALUES " + between.join(values) + b";\n")
    parts.append(b"/*!40000 ALTER TABLE `" + table + b"` ENABLE KEYS */;\nUNLOCK TABLES;\n\n")
    parts.append(b"-- Dump completed on 2025-01-01  0:00:00\n\n")
    path.write_bytes(gzip.compress(b"".join(parts)))
    return path


LANGUAGES = ["de", "en", "fi"]
SENTENCES = ["Eins ist da.", "Zwei kam später.", "Drei ging bald.", "Vier blieb hier.", "Fünf war's dann.", "Schluss."]
HIDDEN, MAINTENANCE = "Hidden_things", "Articles_to_clean"


class Wiki:
    """What a Wikipedia holds, and its files. Pages are numbered from 1 in each language."""

    def __init__(self, language: str, index: int) -> None:
        self.language = language
        self.articles: dict[str, dict] = {}
        for concept in range(1, 25):
            if (concept + index) % 4:  # each language lacks a quarter of the concepts
                categories = [f"Gruppe_{concept % 3}_'d\\été\"", f"水_{concept % 5}", HIDDEN, MAINTENANCE]
                sentences = SENTENCES if concept != 7 else SENTENCES[:2]
                self.articles[f"Q{concept}"] = {
                    "page": concept + 100,
                    "title": f"L'article\\_{concept}",
                    "categories": categories if concept != 5 else [HIDDEN],
                    "sentences": sentences,
                }

    def usable(self) -> dict[str, set[str]]:
        """Concepts with the categories that count."""
        return {
            concept: {name.replace("_", " ") for name in article["categories"] if name not in (HIDDEN, MAINTENANCE)}
            for concept, article in self.articles.items()
            if len(article["sentences"]) >= 5
        }

    def write(self, folder: Path) -> None:
        articles = self.articles.items()
        names = sorted({name for _, article in articles for name in article["categories"]})
        category_page = {name: 500 + index for index, name in enumerate(names)}
        pages = [(a["page"], 0, a["title"].replace(" ", "_"), 0, 0.25, None) for _, a in articles]
        pages += [(page, 14, name, 0, 0.5, None) for name, page in category_page.items()]
        pages += [(900, 0, "Redirect", 1, 0.5, "de"), (901, 1, "Talk", 0, 0.5, None)]
        props = [(a["page"], "wikibase_item", concept, None) for concept, a in articles]
        props += [(category_page[HIDDEN], "hiddencat", "", None), (900, "wikibase_item", "Q1", None)]
        props += [(999, "wikibase_item", "Q2", None), (101, "defaultsort", SORTKEY, 1.5)]  # page 999 is missing
        props += [(901, "wikibase_item", "Q3", None)]
        links = [(a["page"], name, "page") for _, a in articles for name in a["categories"]]
        links += [(category_page[names[0]], names[1], "subcat"), (category_page[names[1]], names[0], "subcat")]  # cycle
        links += [(998, names[0], "page"), (900, names[0], "page")]
        prefix = f"{self.language}wiki-latest-"
        folder.mkdir(exist_ok=True)
        write_dump(folder / f"{prefix}page.sql.gz", CREATE["page"], pages)
        write_dump(folder / f"{prefix}page_props.sql.gz", CREATE["page_props"], props)
        if self.language == "en":  # the present schema
            targets = {name: 10**10 + index for index, name in enumerate(names)}
            rows: list[tuple] = [(page, SORTKEY, kind, 2, targets[name]) for page, name, kind in links]
            rows.append((101, SORTKEY, "page", 2, 77))  # a target that is not listed
            write_dump(folder / f"{prefix}categorylinks.sql.gz", CREATE["categorylinks by id"], rows)
            listed = [(id, 14, name) for name, id in targets.items()] + [(5, 0, names[0])]
            write_dump(folder / f"{prefix}linktarget.sql.gz", CREATE["linktarget"], listed)
        else:
            rows = [(page, name, SORTKEY, "2025-01-01 00:00:00", kind) for page, name, kind in links]
            write_dump(folder / f"{prefix}categorylinks.sql.gz", CREATE["categorylinks"], rows)
        write_sums(folder, prefix)

    def wiki40b(self, folder: Path) -> None:
        rows = [
            {
                "wikidata_id": concept,
                "text": f"\n_START_ARTICLE_\n{a['title']}\n_START_SECTION_\nKopf\n_START_PARAGRAPH_\n"
                f"{' '.join(a['sentences'][:2])}_NEWLINE_{' '.join(a['sentences'][2:])}",
                "version_id": str(7000 + a["page"]),
            }
            for concept, a in self.articles.items()
        ]
        rows.append(rows[0] | {"version_id": "9999", "text": "\n_START_ARTICLE_\nTwice\n_START_PARAGRAPH_\nNo."})
        rows.append(rows[0] | {"wikidata_id": "", "version_id": "9998"})
        (folder / self.language).mkdir(parents=True, exist_ok=True)
        for split, part in {"test": rows[:3], "train": rows[3:9], "validation": rows[9:]}.items():
            parquet.write_table(pa.Table.from_pylist(part), folder / self.language / f"{split}-00000-of-00001.parquet")

    def wikipedia(self, folder: Path) -> None:
        rows = [
            {
                "id": str(a["page"]),
                "url": "https://example.org",
                "title": a["title"],
                "text": "\n\n".join(a["sentences"]),
            }
            for a in self.articles.values()
        ]
        rows.append(rows[0] | {"id": "12345"})  # of no concept
        target = folder / f"20231101.{self.language}"
        target.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.Table.from_pylist(rows), target / "train-00000-of-00001.parquet")


def write_sums(folder: Path, prefix: str) -> None:
    """The list names the files by their date, also that of `latest`."""
    lines = [
        f"{hashlib.sha1(path.read_bytes()).hexdigest()}  {path.name.replace('latest', '20250101')}"
        for path in sorted(folder.glob(f"{prefix}*.sql.gz"))
    ]
    (folder / f"{prefix}sha1sums.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def all_wikis() -> dict[str, Wiki]:
    return {language: Wiki(language, index) for index, language in enumerate(LANGUAGES)}


def write_wikis(folder: Path) -> Path:
    """All three in all forms."""
    for wiki in all_wikis().values():
        wiki.write(folder / "dumps")
        wiki.wiki40b(folder / "wiki40b")
        wiki.wikipedia(folder / "wikipedia")
    return folder


def arguments(world: Path, output: str, *options: str, source: str = "wiki40b") -> list[str]:
    named = {
        "source": source,
        "articles": str(world / source),
        "dumps": str(world / "dumps"),
        "output": str(world / output),
        "languages": json.dumps(LANGUAGES),
        "maintenance_categories": json.dumps(["Articles .*"]),
        "dev_fraction": "0.2",
        "test_fraction": "0.2",
        "dump_mirror": "http://127.0.0.1:9",  # nobody answers there
    }
    return [word for name, value in named.items() for word in (f"--{name}", value)] + list(options)


def write_tables(world: Path, output: str, *options: str, source: str = "wiki40b") -> Path:
    """The tables of articles that the command makes."""
    articles.main(arguments(world, output, *options, source=source))
    return world / output


def rows_of(path: str, order: str = "") -> list[dict]:
    table = duckdb.sql(f"SELECT * FROM read_parquet('{path}') {order}")
    return [dict(zip(table.columns, row)) for row in table.fetchall()]
