"""Triples from wiki-40b and Wikipedia with SQL dumps."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import Counter
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tests.training.corpus.wikipedias import (
    LANGUAGES,
    SENTENCES,
    Wiki,
    all_wikis,
    arguments,
    bytes_of,
    rows_of,
    write_sums,
    write_wikis,
)
from training.corpus import build, main
from training.corpus.articles import WIKI40B_TEXT


@pytest.fixture(scope="module")
def wikis() -> dict[str, Wiki]:
    return all_wikis()


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return write_wikis(tmp_path)


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


def test_threads_do_not_change_a_byte_and_a_seed_does(world):
    main(arguments(world, "one", "--threads", "1"))
    main(arguments(world, "four", "--threads", "4", "--memory_limit", "200MB"))
    main(arguments(world, "other", "--seed", "7"))
    assert bytes_of(world / "one") == bytes_of(world / "four")
    assert bytes_of(world / "one")["triples.parquet"] != bytes_of(world / "other")["triples.parquet"]


# Starts a run for each step and output, which kills itself at that renaming.
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


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_from_the_last_finished_step_and_gives_the_same_bytes(
    world, run_in_a_fresh_process, monkeypatch
):
    program = KILLED.replace("KILLED_AT", str(KILLED_AT)).replace("sys.argv[1:]", "sys.argv[2:]")
    run_in_a_fresh_process(program, str(world / "killed"), *arguments(world, "unused"), folder=world)
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
def test_paths_may_hold_what_is_special_in_sql_or_in_patterns(world, source):
    main(arguments(world, "plain", source=source))
    special = (world / "it's; --\" what? [all]*").resolve()
    special.mkdir()
    for name in (source, "dumps"):
        (world / name).rename(special / name)
    main(arguments(special, "l'été", "--num_triples", "1000", source=source))
    assert bytes_of(special / "l'été") == bytes_of(world / "plain")


@pytest.mark.slow
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


def test_the_folder_is_pushed_to_the_hub_as_a_data_set(world, monkeypatch):
    calls = {}

    def record(name):
        def call(_, *args, **options):
            calls[name] = options | {"args": args}
            return SimpleNamespace(repo_id="someone/corpus")

        return call

    for name in ("create_repo", "upload_folder"):
        monkeypatch.setattr(f"huggingface_hub.HfApi.{name}", record(name))
    main(arguments(world, "corpus", "--push_to_hub", "someone/corpus"))
    assert calls["create_repo"].items() >= {"args": ("someone/corpus",), "repo_type": "dataset"}.items()
    expected = {"folder_path": world / "corpus", "repo_id": "someone/corpus", "repo_type": "dataset"}
    assert calls["upload_folder"].items() >= (expected | {"ignore_patterns": None}).items()
