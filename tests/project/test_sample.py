"""The sample is what its README says."""

import json
from collections import Counter
from pathlib import Path

import pytest
from datasets import load_dataset_builder
from huggingface_hub import DatasetCard

from modeling_hmde.segmentation_hmde import sentence_spans
from tests.paths import REPOSITORY
from training.corpus import ARTICLE_COLUMNS

SAMPLE = REPOSITORY / "sample"
LANGUAGES = ["de", "en", "fr", "it", "ru", "zh"]


def articles(language: str, folder: Path = SAMPLE) -> list[dict]:
    return [json.loads(line) for line in (folder / "docs" / f"{language}.jsonl").read_text("utf-8").splitlines()]


def pairs(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("language", LANGUAGES)
def test_articles_follow_the_schema_and_have_8_to_20_sentences(language):
    for article in articles(language):
        assert list(article) == list(ARTICLE_COLUMNS)
        assert article["language"] == language
        assert 8 <= sum(1 for _ in sentence_spans(article["text"], language)) <= 21  # a colon or an initial may add one


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_the_same_concepts_in_the_same_splits_and_categories(language):
    assert [(a["concept_id"], a["split"], a["categories"]) for a in articles(language)] == [
        (a["concept_id"], a["split"], a["categories"]) for a in articles("en")
    ]


def test_a_category_has_three_training_concepts_one_for_dev_and_one_for_test():
    counts = Counter((article["categories"][0], article["split"]) for article in articles("en"))
    categories = {category for category, _ in counts}
    assert counts == {(c, s): n for c in categories for s, n in (("train", 3), ("dev", 1), ("test", 1))}


@pytest.mark.parametrize("language", LANGUAGES)
def test_queries_ask_for_dev_and_test_concepts_without_naming_them(language):
    titles = {article["concept_id"]: article["title"].lower() for article in articles(language)}
    relevant = {row[0]: row[2] for split in ("dev", "test") for row in pairs(SAMPLE / f"qrels.{split}.tsv")}
    queries = dict(pairs(SAMPLE / "queries" / f"{language}.tsv"))
    assert queries.keys() == relevant.keys()
    assert Counter(Counter(relevant.values()).values()) == {6: len(set(relevant.values()))}
    for query_id, query in queries.items():
        assert titles[relevant[query_id]] not in query.lower()


@pytest.mark.parametrize("split", ["dev", "test"])
def test_qrels_name_concepts_of_their_split(split):
    splits = {article["concept_id"]: article["split"] for article in articles("en")}
    assert {splits[row[2]] for row in pairs(SAMPLE / f"qrels.{split}.tsv")} == {split}


@pytest.mark.parametrize("file", sorted((SAMPLE / "topics").glob("*.tsv")), ids=lambda path: path.name)
def test_topics_are_the_articles_on_one_line(file):
    language, split, _ = file.name.split(".")
    expected = [
        [article["categories"][0], article["text"].replace("\n", " ")]
        for article in articles(language)
        if article["split"] == split
    ]
    assert pairs(file) == expected


@pytest.mark.parametrize("language", LANGUAGES)
def test_long_articles_have_over_a_hundred_sentences_all_of_which_a_model_reads(language):
    documents = articles(language, SAMPLE / "long")
    assert [document["doc_id"] for document in documents] == ["danube", "mississippi", "nile"]
    for document in documents:
        assert 100 < sum(1 for _ in sentence_spans(document["text"], language)) <= 128


@pytest.mark.parametrize("language", LANGUAGES)
def test_ten_questions_seek_a_long_article_without_naming_it(language):
    relevant = {row[0]: row[2] for row in pairs(SAMPLE / "long" / "qrels.tsv")}
    queries = dict(pairs(SAMPLE / "long" / "queries" / f"{language}.tsv"))
    assert queries.keys() == relevant.keys()
    assert Counter(relevant.values()) == {"danube": 10, "mississippi": 10, "nile": 10}
    titles = [document["title"].lower() for document in articles(language, SAMPLE / "long")]
    assert not [query for query in queries.values() if any(title in query.lower() for title in titles)]


def test_the_samples_card_names_its_files_as_huggingface_datasets_reads_them():
    card = DatasetCard.load(SAMPLE / "README.md")
    assert card.data.license == "cc-by-4.0"
    for config in card.data.configs:
        for file in config["data_files"]:
            assert list(SAMPLE.glob(file["path"])), file
    builder = load_dataset_builder(str(SAMPLE), "docs")
    assert builder.config.name == "docs"
