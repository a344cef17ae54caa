"""Tables of articles from wiki-40b and Wikipedia with SQL dumps, and the triples that are made of them."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import Counter
from itertools import combinations
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from replications.wikipedia.articles import WIKI40B_TEXT
from tests.wikipedias import (
    LANGUAGES,
    Wiki,
    all_wikis,
    arguments,
    rows_of,
    write_sums,
    write_tables,
    write_wikis,
)
from training.corpus import ARTICLE_COLUMNS, main


@pytest.fixture(scope="module")
def wikis() -> dict[str, Wiki]:
    return all_wikis()


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return write_wikis(tmp_path)


def tables(folder: Path) -> dict[str, list[dict]]:
    """The rows of each table, in the order of their concepts."""
    return {language: rows_of(f"{folder}/{language}.parquet", "ORDER BY concept_id") for language in LANGUAGES}


@pytest.mark.parametrize("source", ["wiki40b", "wikipedia"])
def test_the_triples_are_all_that_the_definition_allows_and_no_other(world, wikis, source):
    articles = write_tables(world, "articles", source=source)
    main(["--articles", str(articles), "--output", str(world / "corpus"), "--languages", json.dumps(LANGUAGES)])
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
    statistics = json.loads((write_tables(world, "articles") / "statistics.json").read_text())
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


def test_on_request_a_concept_is_dropped_in_all_languages_where_it_is_short_in_one(world, wikis):
    """Only the English article of Q6 is cut to two sentences; Q7 is short in all languages."""
    for path in (world / "wiki40b" / "en").iterdir():
        rows = parquet.read_table(path).to_pylist()
        for row in rows:
            if row["wikidata_id"] == "Q6":
                row["text"] = "\n_START_ARTICLE_\nShort\n_START_PARAGRAPH_\nOne is. Two was."
        parquet.write_table(pa.Table.from_pylist(rows), path)
    kept = {
        rule: {
            language: {row["concept_id"] for row in rows}
            for language, rows in tables(write_tables(world, rule, "--drop_short_concepts", rule)).items()
        }
        for rule in ("false", "true")
    }
    assert "Q6" in kept["false"]["de"]
    for language, wiki in wikis.items():
        assert kept["true"][language] == wiki.articles.keys() - {"Q6", "Q7"}
    statistics = json.loads((world / "true" / "statistics.json").read_text())
    assert statistics["read"]["de"]["in_short_concept"] == 1


def test_wiki40b_markup_becomes_a_title_and_a_paragraph_a_line(world):
    article = tables(write_tables(world, "articles"))["en"][0]
    assert list(article) == list(ARTICLE_COLUMNS)
    assert article["title"] == "L'article\\_1"
    assert (
        article["text"]
        == "Kopf Eins ist da. Zwei kam später.\nDrei ging bald. Vier blieb hier. Fünf war's dann. Schluss."
    )
    assert article["categories"] == ["Gruppe 1 'd\\été\"", "水 1"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("_START_PARAGRAPH_\nOne._NEWLINE_Two.\n_START_SECTION_\nPast\n_START_PARAGRAPH_\nSo.", "One.\nTwo.\nPast So."),
        ("_START_SECTION_\nPast\n_START_SECTION_\nStone Age\n_START_PARAGRAPH_\nOne.", "Past Stone Age One."),
        ("_START_PARAGRAPH_\nOne.\n_START_SECTION_\nLinks\n", "One.\nLinks"),
    ],
)  # fmt: skip
def test_a_heading_stands_before_its_paragraph_and_is_no_sentence_of_its_own(raw, text):
    query = f"SELECT {WIKI40B_TEXT} FROM (SELECT $1 AS text)"
    assert duckdb.execute(query, [f"\n_START_ARTICLE_\nTitle\n{raw}"]).fetchall() == [(text,)]


def test_threads_change_nothing_and_a_seed_changes_the_splits(world):
    one = tables(write_tables(world, "one", "--threads", "1"))
    assert tables(write_tables(world, "four", "--threads", "4", "--memory_limit", "200MB")) == one
    assert tables(write_tables(world, "other", "--seed", "7")) != one


# Starts a run for each step and output, which kills itself at that renaming.
KILLED = """
import os, signal, sys
from replications.wikipedia.articles import main
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
        main([*sys.argv[2:], "--output", f"{sys.argv[1]}{step}"])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, step
"""
# The renamings: a mark, for each wiki 5 for the dumps, 6 with linktarget, and 3 for its articles, then 2 a table.
KILLED_AT = [3, 12, 19, 28, 31]


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_from_the_last_finished_step_and_gives_the_same_tables(
    world, run_in_a_fresh_process, monkeypatch
):
    options = arguments(world, "unused", "--drop_short_concepts", "true")
    program = KILLED.replace("KILLED_AT", str(KILLED_AT))
    run_in_a_fresh_process(program, str(world / "killed"), *options, folder=world)
    whole = tables(write_tables(world, "whole", "--drop_short_concepts", "true"))
    replace = os.replace
    for step in KILLED_AT:
        output = world / f"killed{step}"
        assert not output.exists()
        finished = set((world / f"killed{step}.steps").glob("*.categories.json"))
        written: set[Path] = set()
        monkeypatch.setattr(os, "replace", lambda *names, written=written: (written.add(names[1]), replace(*names)))
        assert tables(write_tables(world, output.name, "--drop_short_concepts", "true")) == whole
        assert not written & finished, "a finished step was done again"
        assert not (world / f"killed{step}.steps").exists()


@pytest.mark.slow
@pytest.mark.parametrize("source", ["wiki40b", "wikipedia"])
def test_paths_may_hold_what_is_special_in_sql_or_in_patterns(world, source):
    plain = tables(write_tables(world, "plain", source=source))
    special = (world / "it's; --\" what? [all]*").resolve()
    special.mkdir()
    for name in (source, "dumps"):
        (world / name).rename(special / name)
    write_tables(special, "l'été", source=source).rename(world / "moved")
    assert tables(world / "moved") == plain


@pytest.mark.slow
def test_a_cycle_of_categories_is_no_membership_and_changes_nothing(world):
    cycle = tables(write_tables(world, "cycle"))
    for language in LANGUAGES:
        path = world / "dumps" / f"{language}wiki-latest-categorylinks.sql.gz"
        sql = gzip.decompress(path.read_bytes())
        assert sql.count(b",'subcat'") == 3  # two rows and what the column may be
        path.write_bytes(gzip.compress(sql.replace(b"'subcat'", b"'file'")))
        write_sums(world / "dumps", f"{language}wiki-latest-")
    assert tables(write_tables(world, "none")) == cycle


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
        write_tables(world, "articles")
    assert not (world / "articles.steps").exists()


@pytest.mark.slow
def test_a_dump_that_is_cut_and_has_its_checksum_is_named(world):
    path = world / "dumps" / "fiwiki-latest-categorylinks.sql.gz"
    path.write_bytes(path.read_bytes()[:-30])
    write_sums(world / "dumps", "fiwiki-latest-")
    with pytest.raises(ValueError, match=r"fiwiki-latest-categorylinks\.sql\.gz is truncated or damaged"):
        write_tables(world, "articles")
    assert not (world / "articles").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "column"), [("wiki40b", "wikidata_id"), ("wikipedia", "title"), ("wiki40b", "version_id")]
)
def test_a_file_of_wikipedia_that_lacks_a_column_is_named(world, source, column):
    path = max((world / source).rglob("*.parquet"))
    parquet.write_table(parquet.read_table(path).drop_columns([column]), path)
    with pytest.raises(ValueError, match=rf"{path.name} has no column {column}; it must have"):
        write_tables(world, "articles", source=source)


@pytest.mark.slow
def test_a_page_whose_id_is_no_number_is_of_no_concept(world):
    path = world / "wikipedia" / "20231101.en" / "train-00000-of-00001.parquet"
    rows = parquet.read_table(path).to_pylist()
    parquet.write_table(pa.Table.from_pylist([*rows, rows[0] | {"id": "none"}]), path)
    folder = write_tables(world, "articles", source="wikipedia")
    assert json.loads((folder / "statistics.json").read_text())["read"]["en"]["without_concept"] == 2


@pytest.mark.slow
def test_links_by_id_need_the_linktarget_dump(world):
    (world / "dumps" / "enwiki-latest-linktarget.sql.gz").unlink()
    write_sums(world / "dumps", "enwiki-latest-")
    with pytest.raises(ValueError, match="the linktarget dump of that date is needed"):
        write_tables(world, "articles")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--maintenance_categories", '["("]'], r"maintenance_categories: '\(' is no pattern"),
        (["--languages", '["de", "xx"]'], r"has no xx/\*\.parquet; articles of xx are needed"),
        (["--output", "."], r"output \. exists; remove it, or name another folder"),
    ],
)
def test_what_a_recipe_cannot_have_is_named_before_any_work(world, options, message):
    with pytest.raises(ValueError, match=message):
        write_tables(world, "articles", *options)
    assert not (world / "articles.steps").exists()
