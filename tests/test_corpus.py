"""Triples from local article tables."""

import json
from pathlib import Path

import duckdb
import pytest

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
        article(f"Q{number}", language, ["river" if number < 6 else "city", "place"], "dev" if number == 9 else "train")
        for number in range(10)
        for language in LANGUAGES
        if language != "fr" or number % 2 == 0
    ]


def run(articles: Path, output: Path, *options: str) -> list[dict]:
    main(["--articles", str(articles), "--output", str(output), "--languages", json.dumps(LANGUAGES), *options])
    columns = duckdb.sql(f"SELECT * FROM '{output}/triples.parquet'")
    return [dict(zip(columns.columns, row)) for row in columns.fetchall()]


def test_every_triple_is_what_the_paper_defines(tmp_path):
    articles = world()
    triples = run(write_articles(tmp_path / "articles", articles), tmp_path / "corpus")
    known = {(row["concept_id"], row["language"]): row for row in articles}
    for triple in triples:
        anchor = known[triple["concept_id"], triple["anchor_language"]]
        positive = known[triple["concept_id"], triple["positive_language"]]
        negative = known[triple["negative_id"], triple["anchor_language"]]
        second = known[triple["positive_negative_id"], triple["positive_language"]]
        assert anchor["language"] != positive["language"]
        assert triple["category"] in set(anchor["categories"]) & set(negative["categories"])
        assert set(positive["categories"]) & set(second["categories"])
        assert triple["concept_id"] not in (triple["negative_id"], triple["positive_negative_id"])
        assert {row["split"] for row in (anchor, positive, negative, second)} == {triple["split"]}


def test_every_pair_of_languages_of_a_concept_comes_once(tmp_path):
    triples = run(write_articles(tmp_path / "articles", world()), tmp_path / "corpus")
    found = sorted((t["concept_id"], *sorted((t["anchor_language"], t["positive_language"]))) for t in triples)
    pairs = {"even": [("de", "en"), ("de", "fr"), ("en", "fr")], "odd": [("de", "en")]}
    expected = [(f"Q{number}", *pair) for number in range(9) for pair in pairs["odd" if number % 2 else "even"]]
    assert found == sorted(expected)  # Q9 has no other article in its split, so no negative


def test_a_seed_decides_the_triples_and_threads_do_not(tmp_path):
    articles = write_articles(tmp_path / "articles", world())
    first = run(articles, tmp_path / "one")
    assert run(articles, tmp_path / "two") == first
    assert run(articles, tmp_path / "three", "--seed", "7") != first


def test_short_documents_are_dropped_and_a_first_line_that_is_the_title_is_cut(tmp_path):
    rows = world()
    rows[0]["text"] = "Too short. By far."
    rows[1]["text"] = rows[1]["title"] + "\n" + TEXT
    run(write_articles(tmp_path / "articles", rows), tmp_path / "corpus")
    kept = dict(
        duckdb.sql(f"SELECT concept_id || language, text FROM '{tmp_path}/corpus/articles/*.parquet'").fetchall()
    )
    assert "Q0de" not in kept
    assert kept["Q0en"] == TEXT


def test_statistics_count_what_was_written(tmp_path):
    triples = run(write_articles(tmp_path / "articles", world()), tmp_path / "corpus")
    statistics = json.loads((tmp_path / "corpus" / "statistics.json").read_text())
    assert statistics["articles"] == {"de": 10, "en": 10, "fr": 5}
    assert sum(statistics["triples"].values()) == sum(statistics["triples_by_languages"].values()) == len(triples)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda folder: (folder / "fr.jsonl").unlink(), "no fr.parquet and no fr.jsonl"),
        (lambda folder: (folder / "fr.jsonl").write_text("{not json}\n"), r"fr\.jsonl is no article table"),
        (
            lambda folder: (folder / "fr.jsonl").write_text(json.dumps(article("Q0", "it", ["river"])) + "\n"),
            "article Q0 is of language it",
        ),
        (
            lambda folder: (folder / "fr.jsonl").write_text(2 * (json.dumps(article("Q0", "fr", ["river"])) + "\n")),
            "concept Q0 stands there more than once",
        ),
    ],
)
def test_a_bad_article_table_is_named(tmp_path, break_it, message):
    articles = write_articles(tmp_path / "articles", world())
    break_it(articles)
    with pytest.raises(ValueError, match=message):
        run(articles, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_a_folder_of_something_else_is_not_replaced(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="holds no corpus"):
        run(write_articles(tmp_path / "articles", world()), tmp_path / "corpus")
    assert (tmp_path / "corpus" / "thesis.txt").exists()


def test_one_language_makes_no_pairs(tmp_path):
    with pytest.raises(ValueError, match="at least two"):
        main(["--articles", str(tmp_path), "--output", str(tmp_path / "out"), "--languages", '["en"]'])
