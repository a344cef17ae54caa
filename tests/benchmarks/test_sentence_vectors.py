"""Sentence vectors of several sizes, beside a ranking written out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from benchmarks.sentence_vectors import best_sentences, main, stored, token_scores
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

DOCUMENTS = {"d1": "Der Hund sah sie. Sie war warm!", "d2": "Die Katze saß da.", "d3": "Ja. Nein. Der Hund."}
QUERIES = {"q1": "The dog", "q2": "The cat sat"}


@pytest.mark.parametrize(("kind", "tolerance"), [("float16", 1e-3), ("int8", 0.02), ("codes", 0.4)])
def test_what_is_stored_points_where_the_vector_did(kind: str, tolerance: float) -> None:
    vectors = np.random.default_rng(0).standard_normal((5, 32)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    kept = stored(vectors, kind, vectors[0])
    np.testing.assert_allclose(np.linalg.norm(kept, axis=1), 1, rtol=1e-5)
    assert np.abs(kept - vectors).max() < tolerance
    assert ((kept * vectors).sum(axis=1) > (0.9 if kind == "codes" else 0.999)).all()


def test_the_best_sentence_of_each_document_is_its_largest_cosine() -> None:
    random = np.random.default_rng(1)
    queries = random.standard_normal((2, 8)).astype(np.float32)
    sentences = [random.standard_normal((count, 8)).astype(np.float32) for count in (3, 1, 4)]
    best = best_sentences(queries, np.concatenate(sentences), [3, 1, 4])
    for row, query in enumerate(queries):
        for column, document in enumerate(sentences):
            assert best[row, column] == pytest.approx(max(query @ sentence for sentence in document), abs=1e-6)


def test_token_vectors_rank_by_the_mean_of_each_tokens_nearest(labse: Path) -> None:
    model, tokenizer = AutoModel.from_pretrained(labse).eval(), AutoTokenizer.from_pretrained(labse)

    def tokens(text: str) -> list[np.ndarray]:
        with torch.inference_mode():
            (rows,) = model(**tokenizer(text, return_tensors="pt")).last_hidden_state.numpy()
        return [row / np.linalg.norm(row) for row in rows]

    queries, texts = list(QUERIES.values()), list(DOCUMENTS.values())
    scores = token_scores(str(labse), torch.float32, queries, texts)
    for row, query in zip(scores, queries):
        for score, text in zip(row, texts):
            asked, found = tokens(f"query: {query}"), tokens(f"passage: {text}")
            assert score == pytest.approx(np.mean([max(a @ b for b in found) for a in asked]), abs=1e-5)


def test_a_table_of_sizes(model_folder: Path, labse: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for folder in ("docs", "queries"):
        (data / folder).mkdir(parents=True)
    lines = [json.dumps({"doc_id": id, "text": text}) for id, text in DOCUMENTS.items()]
    (data / "docs" / "de.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (data / "queries" / "en.tsv").write_text("".join(f"{id}\t{text}\n" for id, text in QUERIES.items()))
    (data / "qrels.tsv").write_text("q1\t0\td1\t1\nq1\t0\td3\t1\nq2\t0\td2\t1\n")
    options = ["--model", str(model_folder), "--data", str(data), "--pairs", "[en-de]", "--sizes", "[8, 4]"]
    main([*options, "--token_encoder", str(labse), "--dtype", "float32", "--output", str(tmp_path / "out")])
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["bytes"]["8 float16"] == 320
    assert results["bytes"]["4 codes"] == 80
    model, tokenizer = (
        HMDEForDocumentEmbedding.from_pretrained(model_folder),
        HMDETokenizer.from_pretrained(model_folder),
    )
    queries = model.encode_queries(list(QUERIES.values()), tokenizer)
    scores = queries @ model.encode_documents(list(DOCUMENTS.values()), tokenizer, language="de").T
    ranks = [1 + sum(scores[0] > max(scores[0, 0], scores[0, 2])), 1 + sum(scores[1] > scores[1, 1])]
    assert results["mrr"]["en-de, late"]["document alone"] == pytest.approx(np.mean(1 / np.array(ranks)))
    assert 0 < results["mrr"]["en-de, late"]["tokens"] <= 1
    assert set(results["mrr"]["en-de, best sentence"]) >= {"sentences alone", "8 int8", "4 codes"}


def test_the_pool_of_all_languages_is_refused() -> None:
    with pytest.raises(ValueError, match="pairs has en-all, and documents are ranked in one language here"):
        main(["--model=none", "--data=none", "--pairs=[en-de, en-all]"])
