"""A corpus of documents whose links nobody knows: what is found, what is left out, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from hmde.common.fingerprints import fingerprint_of_model
from hmde.documents.documents import Columns, Document, Documents
from training.corpus import build, documents, mates
from training.corpus.build import main

LANGUAGES = ["de", "en", "fr"]


def text_of(concept: int, language: str) -> str:
    """Eight sentences; texts of two concepts or languages share few letters."""
    draw = np.random.default_rng([concept, *language.encode()])
    words = ["".join(draw.choice([*"abcdefghiklmnoprstuw"], 6)) for _ in range(64)]
    return " ".join(" ".join(words[place : place + 8]).capitalize() + "." for place in range(0, 64, 8))


def vector_of(concept: int, language: str) -> np.ndarray:
    """Near for one concept; the first ones of a ten are a little alike, and all have much in common, as in life."""

    def draw(*seed: int) -> np.ndarray:
        return np.random.default_rng(seed).normal(size=256)

    vector = (
        draw(0)
        + 0.7 * draw(1, concept // 10 if concept < 40 else concept)
        + draw(2, concept)
        + 0.3 * draw(3, concept, *language.encode())
    )
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def world() -> list[dict]:
    """Forty concepts in all languages, and twenty distractors in one, with their vectors."""
    known = [(concept, language) for concept in range(40) for language in LANGUAGES]
    alone = [(concept, LANGUAGES[concept % 3]) for concept in range(40, 60)]
    return [
        {
            "id": f"{language}-{concept}",
            "language": language,
            "title": f"Title {concept}",
            "text": text_of(concept, language),
            "vector": vector_of(concept, language),
        }
        for concept, language in known + alone
    ]


def corpus_of(folder: Path, rows: list[dict], model: Path, *options: str) -> Path:
    """Writes the documents and the shards that `hmde encode` would write, and makes a corpus."""
    (folder / "documents").mkdir(parents=True)
    (folder / "embeddings").mkdir()
    lines = [json.dumps({name: row[name] for name in row if name != "vector"}) for row in rows]
    (folder / "documents" / "all.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    read = list(Documents(folder / "documents", columns=Columns(id="id")))
    vectors = np.stack([row["vector"] for row in rows])
    shard = {
        "id": [document.id for document in read],
        "content_hash": [document.content_hash for document in read],
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]),
    }
    table = pa.table(shard, metadata={"model": fingerprint_of_model(str(model))})
    parquet.write_table(table, folder / "embeddings" / "shard-000000.parquet", write_page_checksum=True)
    return make(folder, model, *options)


def make(folder: Path, model: Path, *options: str) -> Path:
    arguments = {
        "source": "documents",
        "articles": str(folder / "documents"),
        "embeddings": str(folder / "embeddings"),
        "model": str(model),
        "output": str(folder / "corpus"),
        "languages": json.dumps(LANGUAGES),
    }
    main([word for name, value in arguments.items() for word in (f"--{name}", value)] + list(options))
    return folder / "corpus"


def concepts_of(corpus: Path) -> list[set[str]]:
    """The titles of the documents of each concept in several languages."""
    rows = duckdb.sql(f"SELECT concept_id, title FROM '{corpus}/articles/*.parquet' ORDER BY ALL").fetchall()
    groups: dict[str, list[str]] = {}
    for concept, title in rows:
        groups.setdefault(concept, []).append(title)
    return [{*titles} for titles in groups.values() if len(titles) > 1]


def test_hidden_links_are_found_and_hard_negatives_are_near_but_no_mates(tmp_path, model_folder):
    corpus = corpus_of(tmp_path, world(), model_folder, "--dev_fraction", "0.2")
    assert sorted(concepts_of(corpus), key=str) == sorted([{f"Title {concept}"} for concept in range(40)], key=str)
    report = json.loads((corpus / "mates.json").read_text())
    assert report["documents"] == {"de": 46, "en": 47, "fr": 47}
    assert report["pairs_by_least_margin"]["1.0"] > report["pairs_by_least_margin"]["1.1"] == 3 * 40
    table = duckdb.sql(f"SELECT * FROM '{corpus}/triples.parquet'")
    triples = [dict(zip(table.columns, row)) for row in table.fetchall()]
    assert {triple["split"] for triple in triples} >= {"train", "dev"}
    splits = dict(duckdb.sql(f"SELECT concept_id, split FROM '{corpus}/articles/*.parquet'").fetchall())
    same_ten = 0
    for triple in triples:
        concept, negative = (int(triple[name].split("-")[1]) for name in ("concept_id", "negative_id"))
        language = triple["anchor_language"]
        cosine = vector_of(concept, language) @ vector_of(negative, language)
        mate = min(vector_of(concept, language) @ vector_of(concept, other) for other in LANGUAGES)
        assert concept != negative
        assert cosine <= documents.SHARE * mate + 1e-6
        assert triple["category"] is None
        assert splits[triple["negative_id"]] == triple["split"]
        same_ten += concept // 10 == negative // 10
    assert same_ten > len(triples) / 2  # by chance, a sixth would be


def test_what_is_no_translation_is_left_out_and_counted(tmp_path, model_folder):
    rows = world()
    dated = {**rows[0], "id": "again", "text": f"{rows[0]['text']} 17 May 2021."}
    numbers = {**rows[1], "id": "numbers", "text": "x 1 2 3. " * 40}
    italian = {**rows[2], "id": "italian", "language": "it"}
    untranslated = [row | {"text": text_of(7, "en")} if row["id"] == "de-7" else row for row in rows]
    corpus = corpus_of(tmp_path, [*untranslated, dated, numbers, italian], model_folder)
    left_out = json.loads((corpus / "mates.json").read_text())["left_out"]
    names = ("in another language (it)", "mostly numbers or signs", "near duplicates", "pairs of which one is a copy")
    assert left_out == dict.fromkeys(names, 1)
    written = duckdb.sql(
        f"SELECT count_if(text LIKE '%17 May%' OR text LIKE '%1 2 3%') FROM '{corpus}/articles/*.parquet'"
    )
    assert written.fetchall() == [(0,)]


def test_a_document_that_names_its_concept_keeps_it_and_its_split(tmp_path, model_folder):
    rows = [row | {"concept_id": "Q1", "split": "test"} if row["id"] in ("de-3", "en-4") else row for row in world()]
    corpus = corpus_of(tmp_path, rows, model_folder, "--test_fraction", "0")
    found = concepts_of(corpus)
    assert {"Title 3", "Title 4"} in found
    assert {"Title 3"} in found  # English and French
    assert len(found) == 41
    tests = duckdb.sql(f"SELECT DISTINCT concept_id FROM '{corpus}/articles/*.parquet' WHERE split = 'test'")
    assert tests.fetchall() == [("Q1",)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [row for row in world() if row["language"] == "en"],
            r"belong together at a min_margin of 1.1 \(at 1.0: 0 pairs\)\. Documents: 47 in en; left out: none",
        ),
        (world()[:3], r"\(at 1.0: 3 pairs\)\. Documents: 1 in de, 1 in en, 1 in fr;.*, or lower min_margin"),
        ([world()[0] | {"id": str(copy)} for copy in range(9)], "Documents: 1 in de; left out: 8 near duplicates"),
        ([row | {"language": "it"} for row in world()[:5]], r"Documents: none; left out: 5 in another language \(it\)"),
    ],
    ids=["one language", "three documents", "duplicates only", "no document in the languages"],
)
def test_documents_without_mates_are_refused_with_what_was_found(tmp_path, model_folder, rows, message):
    with pytest.raises(ValueError, match=message):
        corpus_of(tmp_path, rows, model_folder)
    assert not (tmp_path / "corpus").exists()


def test_documents_without_vectors_are_refused_with_the_command_that_makes_them(tmp_path, model_folder):
    corpus_of(tmp_path, world(), model_folder)
    with (tmp_path / "documents" / "all.jsonl").open("a") as file:
        file.write(json.dumps({"id": "new", "language": "de", "text": "New."}) + "\n")
    with pytest.raises(ValueError, match=r"all\.jsonl#new has no vector in .*; run hmde encode .*embeddings"):
        make(tmp_path, model_folder)
    shutil.rmtree(tmp_path / "embeddings")
    with pytest.raises(ValueError, match="holds no embeddings; make some with: hmde encode"):
        make(tmp_path, model_folder)


def test_a_run_that_was_stopped_after_mining_does_not_mine_again(tmp_path, model_folder, monkeypatch):
    expected = corpus_of(tmp_path / "whole", world(), model_folder)
    with monkeypatch.context() as stopped:
        stopped.setattr(build, "draw_triples", None)
        with pytest.raises(TypeError):
            corpus_of(tmp_path / "stopped", world(), model_folder)
    monkeypatch.setattr(documents, "find_mates", None)
    corpus = make(tmp_path / "stopped", model_folder)
    assert (corpus / "triples.parquet").read_bytes() == (expected / "triples.parquet").read_bytes()


def test_the_best_mate_wins_where_a_language_has_two(tmp_path):
    languages = np.array(["de", "de", "en", "en"])
    vectors = np.array([[1, 0, 0], [0.9, 0.1, 0.42], [0.99, 0.1, 0.1], [0, 1, 0]], np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = mates.find_mates(vectors, languages)
    assert found.rows[0].tolist() == [0, 2]
    assert mates.connect(found.rows[:1], languages.tolist()) == [0, 1, 0, 3]


def test_lists_find_what_the_whole_search_finds(monkeypatch):
    faiss.omp_set_num_threads(1)
    draw = np.random.default_rng(0)
    concepts = draw.normal(size=(2000, 16))
    vectors = np.concatenate([concepts + 0.2 * draw.normal(size=concepts.shape) for _ in "ab"]).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    languages = np.repeat(["de", "en"], 2000)
    whole = mates.find_mates(vectors, languages)
    monkeypatch.setattr(mates, "FLAT", 1000)
    lists = mates.find_mates(vectors, languages)
    same = {*map(tuple, whole.rows.tolist())} & {*map(tuple, lists.rows.tolist())}
    assert len(same) > 0.95 * len(whole.rows)


@pytest.mark.parametrize(
    ("id", "title", "expected"),
    [
        ("manual.html", "How to use the pump", "How to use the pump"),
        ("notes/scan_17.txt", "scan_17", "The valve opens."),
        ("manual.pdf#page=3", "The pump, page 3", "The valve opens."),
        ("all.jsonl#12", "12", "The valve opens."),
        ("all.jsonl#12", "The pump", "The pump"),
    ],
)
def test_the_name_of_a_file_is_no_query(id, title, expected):
    document = Document(id, title, "en", "The valve opens. The valve closes.")
    assert documents._title(document, "en") == expected
