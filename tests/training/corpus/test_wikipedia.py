"""Triples from wiki-40b and Wikipedia with SQL dumps, all in the real formats, written here."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.files import locked
from training.corpus import build, main
from training.corpus.download import fetch, fetch_dumps
from training.corpus.dumps import column_types, dump_to_parquet, read_dump
from training.corpus.join import draw_triples, quotas

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


def write_dump(
    path: Path, create: str, rows: list[tuple], rows_per_insert: int = 3, between: bytes = b",", end: bool = True
) -> Path:
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
    parts.append(b"-- Dump completed on 2025-01-01  0:00:00\n\n" if end else b"")
    path.write_bytes(gzip.compress(b"".join(parts)))
    return path


# The parser


@given(
    rows=st.lists(
        st.tuples(
            st.integers(-(2**40), 2**40),
            st.one_of(
                st.none(),
                st.binary(max_size=12),
                st.text(alphabet="'\\\"),(;\n\rN0Zr\0\x1aéП水", max_size=12).map(str.encode),
                st.sampled_from([b"NULL", b"", b"'),(1,'", b";\nINSERT INTO `page` VALUES (", b"\\\\'", b"),("]),
            ),
            st.one_of(st.none(), st.floats(-(10.0**9), 10.0**9)),
        ),
        min_size=1,
        max_size=9,
    ),
    rows_per_insert=st.integers(1, 9),
    between=st.sampled_from([b",", b",\n"]),
    block=st.sampled_from([3, 50, 1 << 20]),
)
def test_every_row_that_mysqldump_can_write_is_read_back(tmp_path_factory, rows, rows_per_insert, between, block):
    path = tmp_path_factory.mktemp("dumps") / "xxwiki-latest-page.sql.gz"
    create = "`a` int(8),\n  `b` varbinary(255),\n  `c` float DEFAULT NULL"
    write_dump(path, create, rows, rows_per_insert, between)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.corpus.dumps._BLOCK", block)
        table = pa.concat_tables(read_dump(path, ["a", "b", "c"]))
    expected = [(a, None if b is None else b.decode(errors="replace"), c) for a, b, c in rows]
    assert list(zip(*(table[name].to_pylist() for name in "abc"))) == expected


def test_an_insert_of_many_megabytes_is_read_in_bounded_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("training.corpus.dumps._BLOCK", 1 << 12)  # blocks end anywhere inside rows
    rows = [(index, f"Title_{index}_" + "x" * 50) for index in range(2000)]
    path = tmp_path / "xxwiki-latest-page.sql.gz"
    write_dump(path, "`a` int(8),\n  `b` varbinary(255)", rows, rows_per_insert=300)
    batches = list(read_dump(path, ["a", "b"]))
    assert max(map(len, batches)) == 300
    assert [row for batch in batches for row in zip(*(batch[name].to_pylist() for name in "ab"))] == rows


def test_columns_come_from_the_dump_and_only_rows_that_are_kept_are_written(tmp_path):
    path = write_dump(tmp_path / "xxwiki-latest-page.sql.gz", CREATE["page"], [(1, 0, "A", 0, 0.5, None)] * 4)
    assert list(column_types(path)) == re.findall(r"`(\w+)`", CREATE["page"])
    keep = pc.field("page_id") > 1
    assert dump_to_parquet(path, tmp_path / "page.parquet", ["page_id"], keep) == {"rows": 4, "kept": 0}
    assert parquet.read_schema(tmp_path / "page.parquet").names == ["page_id"]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda raw: raw[: len(raw) // 2], "truncated or damaged"),
        (lambda raw: gzip.compress(gzip.decompress(raw).split(b"UNLOCK")[0]), "does not end with"),
        (lambda raw: gzip.compress(b"<html>not found</html>"), "no CREATE TABLE"),
        (lambda raw: gzip.decompress(raw), "truncated or damaged"),
        (lambda raw: raw + gzip.compress(b"INSERT INTO"), "does not end with `-- Dump completed`"),
        (lambda raw: gzip.compress(gzip.decompress(raw).replace(b"NULL)", b"NULL,1)", 1)), "is damaged"),
    ],
)
def test_a_dump_that_is_not_whole_is_named(tmp_path, break_it, message):
    path = write_dump(tmp_path / "xxwiki-latest-page.sql.gz", CREATE["page"], [(1, 0, "A", 0, 0.5, None)] * 9)
    path.write_bytes(break_it(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"page\.sql\.gz.*{message}"):
        dump_to_parquet(path, tmp_path / "page.parquet", ["page_id", "page_title"])
    assert not (tmp_path / "page.parquet").exists()


def test_a_column_that_a_dump_lacks_is_named(tmp_path):
    path = write_dump(tmp_path / "xxwiki-latest-page.sql.gz", CREATE["page"], [])
    with pytest.raises(ValueError, match="has no column cl_to; its columns are page_id"):
        list(read_dump(path, ["cl_to"]))


# A world of three Wikipedias

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


@pytest.fixture(scope="module")
def wikis() -> dict[str, Wiki]:
    return {language: Wiki(language, index) for index, language in enumerate(LANGUAGES)}


@pytest.fixture
def world(tmp_path: Path, wikis: dict[str, Wiki]) -> Path:
    for wiki in wikis.values():
        wiki.write(tmp_path / "dumps")
        wiki.wiki40b(tmp_path / "wiki40b")
        wiki.wikipedia(tmp_path / "wikipedia")
    return tmp_path


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


def rows_of(path: str) -> list[dict]:
    table = duckdb.sql(f"SELECT * FROM read_parquet('{path}')")
    return [dict(zip(table.columns, row)) for row in table.fetchall()]


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


@pytest.mark.parametrize("source", ["wiki40b", "wikipedia"])
def test_the_triples_are_all_that_the_definition_allows_and_no_other(world, wikis, source):
    main(arguments(world, "corpus", source=source))
    usable = {language: wiki.usable() for language, wiki in wikis.items()}
    split = {row["concept_id"]: row["split"] for row in rows_of(f"{world}/corpus/articles/*.parquet")}
    assert set(split.values()) == {"train", "dev", "test"}

    def negatives(concept: str, language: str) -> dict[str, set[str]]:
        """Other concepts of the language and split that share a category, and which."""
        own = usable[language][concept]
        return {
            other: own & categories
            for other, categories in usable[language].items()
            if other != concept and split.get(other) == split[concept] and own & categories
        }

    triples = rows_of(f"{world}/corpus/triples.parquet")
    for triple in triples:
        concept, anchor, positive = (triple[name] for name in ("concept_id", "anchor_language", "positive_language"))
        assert concept in usable[anchor]
        assert concept in usable[positive]
        assert triple["category"] in negatives(concept, anchor)[triple["negative_id"]]
        second = triple["positive_negative_id"]
        assert second in negatives(concept, positive) or (second is None and not negatives(concept, positive))
        assert triple["split"] == split[concept]
    drawn = Counter((t["concept_id"], *sorted((t["anchor_language"], t["positive_language"]))) for t in triples)
    expected = {
        (concept, one, other)
        for one, other in combinations(LANGUAGES, 2)
        for concept in usable[one].keys() & usable[other].keys()
        if negatives(concept, one) or negatives(concept, other)
    }
    assert set(drawn.values()) == {1}
    both = {key for key in expected if all(negatives(key[0], language) for language in key[1:])}
    assert both <= set(drawn) <= expected


def test_what_was_dropped_is_counted(world, wikis):
    main(arguments(world, "corpus"))
    statistics = json.loads((world / "corpus" / "statistics.json").read_text())
    for language, wiki in wikis.items():
        num = len(wiki.articles)
        assert statistics["read"][language] == {
            "read": num + 2,
            "without_concept": 1,
            "duplicate_concept": 1,
            "short": int("Q7" in wiki.articles),
            "kept": num - ("Q7" in wiki.articles),
            "kept_without_category": int("Q5" in wiki.articles),
        }
        dump = statistics["dumps"][language]
        assert dump["articles"] == dump["articles_with_concept"] == dump["concepts"] == num
        assert dump["hidden_categories"] == 1
        assert dump["links_without_category"] == ("Q1" in wiki.articles and language == "en")
    assert statistics["pairs"] - statistics["triples_in_all"] == statistics["pairs_without_triple"] > 0
    assert "| fi |" in (world / "corpus" / "README.md").read_text()


def test_wiki40b_markup_becomes_a_title_and_a_paragraph_a_line(world):
    main(arguments(world, "corpus"))
    article = next(row for row in rows_of(f"{world}/corpus/articles/en.parquet") if row["concept_id"] == "Q1")
    assert article["title"] == "L'article\\_1"
    assert (
        article["text"]
        == "Kopf\nEins ist da. Zwei kam später.\nDrei ging bald. Vier blieb hier. Fünf war's dann. Schluss."
    )
    assert article["categories"] == ["Gruppe 1 'd\\été\"", "水 1"]


def test_threads_do_not_change_a_byte_and_a_seed_does(world):
    main(arguments(world, "one", "--threads", "1"))
    main(arguments(world, "four", "--threads", "4", "--memory_limit", "200MB"))
    main(arguments(world, "other", "--seed", "7"))
    assert bytes_of(world / "one") == bytes_of(world / "four")
    assert bytes_of(world / "one")["triples.parquet"] != bytes_of(world / "other")["triples.parquet"]


# Imports once, then starts a run for each step and output, which kills itself at that renaming.
KILLED = """
import os, signal, sys
from training.corpus import main
replace, calls = os.replace, [0]
def die_at(*args):
    calls[0] += 1
    if calls[0] == step:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*args)
for step in KILLED_AT:
    child = os.fork()
    if child == 0:
        os.replace = die_at
        main(sys.argv[1:] + ["--output", f"{sys.argv[1]}{step}"])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, step
"""
# The renamings: a mark, 5 for the dumps of a wiki and 6 with linktarget, 2 for its articles, triples, output, steps.
KILLED_AT = [3, 12, 19, 24]


def test_a_run_that_was_killed_goes_on_from_the_last_finished_step_and_gives_the_same_bytes(world, monkeypatch):
    program = KILLED.replace("KILLED_AT", str(KILLED_AT)).replace("sys.argv[1:]", "sys.argv[2:]")
    subprocess.run([sys.executable, "-c", program, str(world / "killed"), *arguments(world, "unused")], check=True)
    main(arguments(world, "whole"))
    replace = os.replace
    for step in KILLED_AT:
        output = world / f"killed{step}"
        assert not output.exists()
        finished = set((world / f"killed{step}.steps").glob("*.json"))
        written: set[Path] = set()
        monkeypatch.setattr(os, "replace", lambda *names, written=written: (written.add(names[1]), replace(*names)))
        main(arguments(world, output.name))
        assert not written & finished, "a finished step was done again"
        assert bytes_of(output) == bytes_of(world / "whole")
        assert not (world / f"killed{step}.steps").exists()


@pytest.mark.parametrize("source", ["wiki40b", "wikipedia"])
def test_paths_may_hold_what_is_special_in_sql(world, source):
    main(arguments(world, "plain", source=source))
    special = (world / "it's; --\"").resolve()
    special.mkdir()
    for name in (source, "dumps"):
        (world / name).rename(special / name)
    main(arguments(special, "l'été", "--num_triples", "1000", source=source))
    assert bytes_of(special / "l'été") == bytes_of(world / "plain")


def test_steps_of_another_recipe_or_of_other_files_are_not_taken_up(world, monkeypatch):
    monkeypatch.setattr(build, "write_corpus", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(arguments(world, "corpus"))
    monkeypatch.undo()
    assert (world / "corpus.steps" / "triples.parquet").exists()
    main(arguments(world, "corpus", "--seed", "7"))
    main(arguments(world, "fresh", "--seed", "7"))
    assert bytes_of(world / "corpus") == bytes_of(world / "fresh")


def test_a_cycle_of_categories_is_no_membership_and_changes_nothing(world, wikis):
    main(arguments(world, "cycle"))
    for language in LANGUAGES:
        path = world / "dumps" / f"{language}wiki-latest-categorylinks.sql.gz"
        sql = gzip.decompress(path.read_bytes())
        assert sql.count(b",'subcat'") == 3  # two rows and what the column may be
        path.write_bytes(gzip.compress(sql.replace(b"'subcat'", b"'file'")))
        write_sums(world / "dumps", f"{language}wiki-latest-")
    main(arguments(world, "none"))
    assert bytes_of(world / "cycle") == bytes_of(world / "none")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dumps/enwiki-latest-page.sql.gz", "has the SHA-1"),
        ("wiki40b/en/train-00000-of-00001.parquet", "is no Parquet file, or not a whole one"),
    ],
)
def test_an_input_that_is_cut_is_named_before_any_work(world, name, message):
    (world / name).write_bytes((world / name).read_bytes()[:-30])
    with pytest.raises(ValueError, match=rf"{re.escape(name)}.*{message}"):
        main(arguments(world, "corpus"))
    assert not (world / "corpus.steps").exists()


def test_a_dump_that_is_cut_and_has_its_checksum_is_named(world):
    path = world / "dumps" / "fiwiki-latest-categorylinks.sql.gz"
    path.write_bytes(path.read_bytes()[:-30])
    write_sums(world / "dumps", "fiwiki-latest-")
    with pytest.raises(ValueError, match=r"fiwiki-latest-categorylinks\.sql\.gz is truncated or damaged"):
        main(arguments(world, "corpus"))
    assert not (world / "corpus").exists()


@pytest.mark.parametrize(
    ("source", "column"), [("wiki40b", "wikidata_id"), ("wikipedia", "title"), ("wiki40b", "version_id")]
)
def test_a_file_of_wikipedia_that_lacks_a_column_is_named(world, source, column):
    path = max((world / source).rglob("*.parquet"))
    parquet.write_table(parquet.read_table(path).drop_columns([column]), path)
    with pytest.raises(ValueError, match=rf"{path.name} has no column {column}; it must have"):
        main(arguments(world, "corpus", source=source))


def test_a_page_whose_id_is_no_number_is_of_no_concept(world, wikis):
    path = world / "wikipedia" / "20231101.en" / "train-00000-of-00001.parquet"
    rows = parquet.read_table(path).to_pylist()
    parquet.write_table(pa.Table.from_pylist([*rows, rows[0] | {"id": "none"}]), path)
    main(arguments(world, "corpus", source="wikipedia"))
    statistics = json.loads((world / "corpus" / "statistics.json").read_text())
    assert statistics["read"]["en"]["without_concept"] == 2


def test_a_full_disk_says_so_and_what_is_finished_stays(world, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(build, "write_corpus", full)
    with pytest.raises(OSError, match=r"disk of .*corpus is full.*goes on from the last finished step"):
        main(arguments(world, "corpus"))
    assert (world / "corpus.steps" / "triples.parquet").exists()
    assert not (world / "corpus").exists()


def test_links_by_id_need_the_linktarget_dump(world):
    (world / "dumps" / "enwiki-latest-linktarget.sql.gz").unlink()
    write_sums(world / "dumps", "enwiki-latest-")
    with pytest.raises(ValueError, match="the linktarget dump of that date is needed"):
        main(arguments(world, "corpus"))


def test_a_concept_in_two_splits_is_named(tmp_path):
    for language, split in (("de", "train"), ("en", "dev")):
        row = {"concept_id": "Q1", "language": language, "title": "T", "text": " ".join(SENTENCES), "split": split}
        row |= {"categories": ["a"], "source": "s", "license": "l"}
        (tmp_path / f"{language}.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ValueError, match="Q1 is in the splits train in de, dev in en"):
        main(["--articles", str(tmp_path), "--output", str(tmp_path / "out"), "--languages", '["de", "en"]'])


# Downloads


@pytest.fixture
def mirror(tmp_path: Path, wikis: dict[str, Wiki]) -> Iterator[tuple[str, list[str]]]:
    """A server with the dumps of English and Finnish, which breaks off a first answer; and what it was asked."""
    served = tmp_path / "served"
    for language in ("en", "fi"):
        (served / f"{language}wiki" / "latest").mkdir(parents=True)
        wikis[language].write(served / f"{language}wiki" / "latest")
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = served / self.path.lstrip("/")
            begin = int(re.sub(r"\D", "", self.headers.get("Range", "0")))
            asked.append(f"{path.name} {begin}")
            if not path.is_file():
                self.send_error(404)
                return
            data = path.read_bytes()
            if begin >= len(data):
                self.send_error(416)
                return
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(data) - begin))
            self.end_headers()
            broken = "enwiki-latest-page.sql" in self.path and not begin
            self.wfile.write(data[begin : 50 if broken else None])

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()


def test_a_download_resumes_verifies_and_leaves_alone_what_is_there(tmp_path, mirror):
    address, asked = mirror
    with pytest.raises(ValueError, match=r"1 files are not in .*\n +http.*/enwiki-latest-page\.sql\.gz$"):
        fetch_dumps(["en", "fi"], tmp_path / "dumps", "latest", address)
    dumps = fetch_dumps(["en", "fi"], tmp_path / "dumps", "latest", address)
    assert asked[-1] == "enwiki-latest-page.sql.gz 50"
    assert list(dumps["en"]) == ["page", "page_props", "categorylinks", "linktarget"]
    assert list(dumps["fi"]) == ["page", "page_props", "categorylinks"]
    count = len(asked)
    assert fetch_dumps(["en", "fi"], tmp_path / "dumps", "latest", address) == dumps
    assert len(asked) == count


def test_a_file_that_was_fetched_whole_but_not_renamed_is_not_fetched_again(tmp_path, mirror):
    address, asked = mirror
    name = "fiwiki-latest-page.sql.gz"
    shutil.copy(tmp_path / "served" / "fiwiki" / "latest" / name, tmp_path / f"{name}.partial")
    fetch(f"{address}/fiwiki/latest/{name}", tmp_path / name)
    assert (tmp_path / name).exists()
    assert len(asked) == 1


def test_a_wrong_checksum_is_named_and_the_fetched_file_removed(tmp_path, mirror):
    address, _ = mirror
    target = tmp_path / "dumps" / "page.sql.gz"
    target.parent.mkdir()
    with pytest.raises(ValueError, match=r"page\.sql\.gz.*has the SHA-1 .*its list says 00"):
        fetch(f"{address}/fiwiki/latest/fiwiki-latest-page.sql.gz", target, "00")
    assert not list(target.parent.glob("[!.]*"))


@pytest.mark.parametrize("content", ["<html>not found</html>\n", "da39a3ee  enwiki-latest-page.sql.gz\n", "\xff\n"])
def test_a_list_of_checksums_that_is_none_is_named_with_the_line(world, content):
    (world / "dumps" / "enwiki-latest-sha1sums.txt").write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=r"enwiki-latest-sha1sums\.txt, line 1 is no checksum and file name"):
        main(arguments(world, "corpus"))


def test_two_builders_fetch_a_dump_once(tmp_path, mirror):
    address, asked = mirror
    name = "fiwiki-latest-page.sql.gz"
    with ThreadPoolExecutor(1) as pool:
        with locked(tmp_path / name):  # the first is about to fetch it
            second = pool.submit(fetch, f"{address}/fiwiki/latest/{name}", tmp_path / name)
            shutil.copy(tmp_path / "served" / "fiwiki" / "latest" / name, tmp_path / name)
        second.result(timeout=10)
    assert not asked


def test_a_language_without_a_dump_is_named(tmp_path, mirror):
    with pytest.raises(ValueError, match=r"xxwiki-latest-sha1sums\.txt: 404 .*no such dump"):
        fetch_dumps(["xx"], tmp_path / "dumps", "latest", mirror[0])


def test_without_a_network_every_file_to_bring_is_listed(tmp_path):
    with pytest.raises(ValueError, match="10 files are not in") as raised:
        fetch_dumps(["en", "fi"], tmp_path / "dumps", "20250101", "http://127.0.0.1:9")
    assert str(raised.value).count("http://127.0.0.1:9/fiwiki/20250101/fiwiki-20250101-") == 5


def test_a_data_set_that_cannot_be_fetched_says_what_to_bring_where(tmp_path):
    with pytest.raises(ValueError, match=r"--articles:\n.*google/wiki40b/tree/main/zh-cn/\*\.parquet"):
        main(f"--source wiki40b --articles google/wiki40b --languages [zh,en] --output {tmp_path}/out".split())


def test_folders_may_have_names_that_are_patterns(world):
    main(arguments(world, "corpus"))
    named_so = world / "what? [all]*"
    for source in ("dumps", "wiki40b"):
        shutil.copytree(world / source, named_so / source)
    main(arguments(named_so, "corpus"))
    assert bytes_of(named_so / "corpus") == bytes_of(world / "corpus")


# Down-sampling, engines, Hub


def test_a_sample_has_the_number_asked_for_in_the_shares_of_its_exponent(world):
    main(arguments(world, "all"))
    main(arguments(world, "some", "--num_triples", "12", "--pair_exponent", "0.0"))
    every = [tuple(row.values()) for row in rows_of(f"{world}/all/triples.parquet")]
    some = [tuple(row.values()) for row in rows_of(f"{world}/some/triples.parquet")]
    assert set(some) < set(every)
    assert Counter("".join(sorted((row[1], row[2]))) for row in some) == {"deen": 4, "defi": 4, "enfi": 4}
    assert some == sorted(some, key=lambda row: (row[6], row[0], row[1], row[2]))


@given(
    sizes=st.dictionaries(st.text("abc", min_size=1), st.integers(1, 10**6), min_size=1, max_size=8),
    total=st.integers(0, 10**6),
    exponent=st.floats(0, 1),
)
def test_quotas_add_up_and_ask_for_no_more_than_there_are(sizes, total, exponent):
    quota = quotas(sizes, total, exponent)
    assert sum(quota.values()) == min(total, sum(sizes.values()))
    assert all(0 <= quota[kind] <= size for kind, size in sizes.items())


def test_an_exponent_without_a_number_is_an_error(world):
    with pytest.raises(ValueError, match="set num_triples too"):
        main(arguments(world, "corpus", "--pair_exponent", "0.7"))


def test_a_category_over_the_limit_is_drawn_less_often(tmp_path):
    rows = [
        {"concept_id": f"Q{n}", "language": lang, "split": "train", "categories": ["all", f"small {n // 5}"]}
        for n in range(1000)
        for lang in ("de", "en")
    ]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "articles.parquet")
    shares = []
    for limit in (1000, 100):
        with duckdb.connect() as connection:
            draw_triples(
                connection, [tmp_path / "articles.parquet"], tmp_path / "t.parquet", category_limit=limit, seed=1
            )
        shares.append(sum(row["category"] == "all" for row in rows_of(f"{tmp_path}/t.parquet")) / 1000)
    assert 0.45 < shares[0] < 0.55
    assert 0.02 < shares[1] < 0.09


SPARK = (
    "--master local[1] --conf spark.sql.shuffle.partitions=1 --conf spark.ui.enabled=false "
    "--conf spark.sql.codegen.wholeStage=false --conf spark.sql.codegen.factoryMode=NO_CODEGEN "
    "--conf spark.sql.adaptive.enabled=false --conf spark.sql.autoBroadcastJoinThreshold=-1 "
    "--conf spark.driver.memory=1g pyspark-shell"
)


@pytest.mark.skipif(not shutil.which("java"), reason="Spark needs Java")
def test_spark_gives_the_same_triples(world, monkeypatch, tmp_path):
    pytest.importorskip("pyspark", reason="pip install 'hmde[spark]'")
    monkeypatch.chdir(tmp_path)  # where Spark makes a folder of its own
    for name, value in {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": SPARK}.items():
        monkeypatch.setenv(name, value)
    main(arguments(world, "duckdb", "--category_limit", "2"))
    main(arguments(world, "spark{1}[2]", "--category_limit", "2", "--engine", "spark"))
    assert bytes_of(world / "duckdb") == bytes_of(world / "spark{1}[2]")


def test_the_folder_is_pushed_to_the_hub_as_a_data_set(world, monkeypatch):
    calls = []
    for name in ("create_repo", "upload_folder"):
        monkeypatch.setattr(
            f"huggingface_hub.HfApi.{name}", lambda _, *args, name=name, **options: calls.append((name, args, options))
        )
    main(arguments(world, "corpus", "--push_to_hub", "someone/corpus"))
    assert calls == [
        ("create_repo", ("someone/corpus",), {"repo_type": "dataset", "exist_ok": True}),
        (
            "upload_folder",
            (),
            {"folder_path": world / "corpus", "repo_id": "someone/corpus", "repo_type": "dataset"},
        ),
    ]
