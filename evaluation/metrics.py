"""All measures: for rankings (MAP, nDCG, MRR ...), one label a text (accuracy, macro-F1), several (R-precision)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ir_measures
import numpy as np
from ir_measures import AP, RR, P, R, nDCG

Qrels = Mapping[str, Mapping[str, int]]  # grade by query_id and doc_id
Ranked = Mapping[str, Mapping[str, float]]  # score by query_id and doc_id

# Scores by measure, and the value of each document.
Measured = tuple[dict[str, float], list[float]]

# Each the mean over the queries. AP divides by all relevant documents of the collection, retrieved or not.
RETRIEVAL_MEASURES = {"MAP": AP, "nDCG@10": nDCG @ 10, "MRR": RR, "Recall@100": R @ 100, "P@1": P @ 1}


def retrieval_values(
    qrels: Qrels, run: Ranked, ranks: Mapping[str, Sequence[int]] | None = None
) -> dict[str, dict[str, float]]:
    """Each measure of rankings by query_id, as trec_eval computes it.

    Args:
        run: the first documents of each query.
        ranks: of all relevant documents of each query in the whole collection, lowest first; MAP and MRR are then of
            the whole ranking. None: of the documents of the run alone.
    """
    names = {str(measure): name for name, measure in RETRIEVAL_MEASURES.items()}
    values: dict[str, dict[str, float]] = {name: {} for name in RETRIEVAL_MEASURES}
    for value in ir_measures.iter_calc(RETRIEVAL_MEASURES.values(), qrels, run):
        values[names[str(value.measure)]][value.query_id] = value.value
    for query_id, query_ranks in (ranks or {}).items():
        precisions = [found / rank for found, rank in enumerate(query_ranks, start=1)]
        values["MAP"][query_id] = float(np.mean(precisions))
        values["MRR"][query_id] = 1 / query_ranks[0]
    return values


def accuracy_and_f1(labels: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Accuracy, and macro-F1 over the labels that occur or are predicted; one label a text."""
    from sklearn.metrics import accuracy_score, f1_score  # takes seconds to import

    return {
        "accuracy": float(accuracy_score(labels, predicted)),
        "macro_f1": float(f1_score(labels, predicted, average="macro")),
    }


def r_precisions(targets: np.ndarray, decisions: np.ndarray) -> list[float]:
    """The R-precision of each document: where it has R labels, the share of them among its R most probable ones.

    Args:
        targets: (documents, labels), 1 where a document has the label.
        decisions: (documents, labels), higher where more probable.
    """
    ranked = np.argsort(-decisions, axis=1, kind="stable")
    return [float(relevant[order[: relevant.sum()]].mean()) for relevant, order in zip(targets, ranked)]


def scores_of_labels(labels: Sequence[str], predicted: Sequence[str]) -> Measured:
    """For one label a text: accuracy, macro-F1 and the number of documents, and whether each document is right."""
    scores = accuracy_and_f1(labels, predicted) | {"documents": len(labels)}
    return scores, [float(label == guess) for label, guess in zip(labels, predicted)]


def scores_of_label_sets(targets: np.ndarray, predicted: np.ndarray, decisions: np.ndarray) -> Measured:
    """For several labels a text: R-precision, micro-F1, the number of documents, and the R-precision of each document.

    Args:
        targets, predicted: (documents, labels), 1 where a document has the label, and where it is said to have it.
        decisions: (documents, labels), higher where more probable.
    """
    from sklearn.metrics import f1_score  # takes seconds to import

    precisions = r_precisions(targets, decisions)
    micro_f1 = f1_score(targets, predicted, average="micro")
    scores = {"r_precision": float(np.mean(precisions)), "micro_f1": float(micro_f1), "documents": len(targets)}
    return scores, precisions
