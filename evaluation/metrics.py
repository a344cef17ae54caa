"""Measures of texts with one label (accuracy, macro-F1) or several (R-precision). Those of rankings, and whatever the
library evaluate can load, are in measures/."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evaluation.measures.accuracy_and_f1.accuracy_and_f1 import AccuracyAndF1

# Scores by measure, and the value of each document.
Measured = tuple[dict[str, float], list[float]]


def accuracy_and_f1(labels: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Accuracy, and macro-F1 over the labels that occur or are predicted; one label a text."""
    return AccuracyAndF1(keep_in_memory=True).compute(predictions=predicted, references=labels)


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
