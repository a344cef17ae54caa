"""Rankings of whole collections: every number against a slow reference that compares all with all."""

from __future__ import annotations

import numpy as np
import pytest

import evaluation.similarity as module
from evaluation.measures.retrieval.retrieval import retrieval_values
from evaluation.similarity import highest, inner_products, ranks


def unit_vectors(count: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, 16)).astype(np.float32) + 0.5
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VECTORS_AT_ONCE", 300)
    monkeypatch.setattr(module, "PRODUCTS_AT_ONCE", 7000)


def test_the_nearest_vectors_are_those_that_comparing_all_finds() -> None:
    documents, queries = unit_vectors(1000, seed=0), unit_vectors(20, seed=1)
    blocks = list(inner_products(documents, queries))
    assert all(block.size <= 7000 for block in blocks)  # what is in memory at once
    cosines = np.concatenate(blocks)
    assert cosines == pytest.approx(queries @ documents.T, abs=1e-5)
    assert cosines.dtype == np.float32
    for row in cosines:
        assert list(highest(row, 310)) == list(np.argsort(-row, kind="stable")[:310])  # more than a block has
        for depth in (1000, 2000):  # all that there are, and more
            assert list(highest(row, depth)) == list(np.argsort(-row, kind="stable"))


def test_a_rank_counts_all_documents_before_it_and_equal_ones_of_a_higher_id() -> None:
    scores = np.array([0.5, 0.9, 0.5, 0.5, 0.1])
    assert ranks(scores, [2, 4, 1], ["d1", "d2", "d3", "d4", "d5"]) == [1, 3, 5]  # d4 stands before d3


def test_map_and_mrr_of_the_whole_ranking_equal_those_of_a_run_that_holds_it() -> None:
    rng = np.random.default_rng(4)
    doc_ids = [f"d{number}" for number in range(300)]
    qrels, whole, first, found = {}, {}, {}, {}
    for query in ("q1", "q2", "q3"):
        scores = rng.integers(0, 40, size=300) / 40  # many are equal
        relevant = rng.choice(300, size=5, replace=False)
        qrels[query] = {doc_ids[row]: 1 for row in relevant}
        whole[query] = {doc_ids[row]: float(scores[row]) for row in range(300)}
        first[query] = {doc_ids[row]: float(scores[row]) for row in highest(scores, 10)}
        found[query] = ranks(scores, list(relevant), doc_ids)
    expected, values = retrieval_values(qrels, whole), retrieval_values(qrels, first, found)
    for measure in ("MAP", "MRR"):
        assert values[measure] == pytest.approx(expected[measure])
    assert retrieval_values(qrels, first)["MAP"] != pytest.approx(expected["MAP"])
