"""Measures of rankings against their definitions, worked out by hand."""

from __future__ import annotations

import math
import socket

import evaluate
import pytest

from evaluation.measures.retrieval.retrieval import retrieval_values
from evaluation.metrics import accuracy_and_f1, scores_of_labels
from tests.paths import REPOSITORY

MEASURES = REPOSITORY / "evaluation" / "measures"


def run_of(count: int) -> dict[str, float]:
    """d001 first, d002 second ..."""
    return {f"d{rank:03}": 1 - rank / 1000 for rank in range(1, count + 1)}


@pytest.mark.parametrize(
    ("rank", "ndcg", "recall", "first"),
    [
        (1, 1.0, 1.0, 1.0),
        (2, 1 / math.log2(3), 1.0, 0.0),
        (10, 1 / math.log2(11), 1.0, 0.0),
        (11, 0.0, 1.0, 0.0),
        (100, 0.0, 1.0, 0.0),
        (101, 0.0, 0.0, 0.0),
    ],
)
def test_measures_look_as_far_down_as_their_names_say(rank: int, ndcg: float, recall: float, first: float) -> None:
    values = retrieval_values({"q": {f"d{rank:03}": 1}}, {"q": run_of(120)})
    expected = {"MAP": 1 / rank, "MAP@20": (rank <= 20) / rank, "MRR": 1 / rank}
    expected |= {"nDCG@10": ndcg, "Recall@100": recall, "P@1": first}
    assert {name: by_query["q"] for name, by_query in values.items()} == pytest.approx(expected)


def test_the_library_evaluate_loads_the_measures_from_their_folders_without_a_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket.socket, "connect", None)
    monkeypatch.setattr(socket, "getaddrinfo", None)
    ranking = evaluate.load(str(MEASURES / "retrieval"))
    values = ranking.compute(predictions=[["a", "b"], ["c"]], references=[["b"], ["d", "c"]], grades=[[1], [2, 1]])
    ideal = 2 + 1 / math.log2(3)
    assert values == pytest.approx(
        {"MAP": 0.5, "MAP@20": 0.5, "MRR": 0.75, "nDCG@10": (1 / math.log2(3) + 1 / ideal) / 2}
        | {"Recall@100": 0.75, "P@1": 0.5}
    )
    labels = evaluate.load(str(MEASURES / "accuracy_and_f1"))
    known, predicted = ["a", "a", "a", "b", "c", "c"], ["a", "a", "b", "b", "b", "d"]
    # F1 of a: precision 1, recall 2/3; of b: precision 1/3, recall 1; of c, never found, and d, never there: 0.
    expected = {"accuracy": 0.5, "macro_f1": pytest.approx((0.8 + 0.5) / 4)}
    assert labels.compute(predictions=predicted, references=known) == accuracy_and_f1(known, predicted) == expected


def test_average_precision_and_reciprocal_rank_are_of_the_whole_ranking_where_it_is_known() -> None:
    qrels = {"q": {"d002": 1, "d004": 2, "absent": 1}, "p": {"d001": 1}, "r": {"absent": 1}}
    run = {"q": run_of(3), "p": run_of(3), "r": run_of(3)}
    values = retrieval_values(qrels, run, {"q": [2, 4, 1000], "r": [10]})
    assert values["MAP"] == pytest.approx({"q": (1 / 2 + 2 / 4 + 3 / 1000) / 3, "p": 1.0, "r": 0.1})
    assert values["MRR"] == pytest.approx({"q": 1 / 2, "p": 1.0, "r": 0.1})
    assert retrieval_values(qrels, run)["MAP"] == pytest.approx({"q": 1 / 2 / 3, "p": 1.0, "r": 0.0})


def test_a_label_counts_for_its_document_and_for_the_mean() -> None:
    scores, of_each = scores_of_labels(["a", "b", "a", "c"], ["a", "a", "a", "c"])
    assert of_each == [1.0, 0.0, 1.0, 1.0]
    # F1 of a, b and c: 4/5, 0 and 1.
    assert scores == pytest.approx({"accuracy": 0.75, "macro_f1": 0.6, "documents": 4})
