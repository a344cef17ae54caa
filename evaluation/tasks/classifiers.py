"""Classifiers above frozen document vectors: logistic regression, one a label for texts with several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from common.progress import progress_bar
from evaluation.datasets.labelled_sets import LABEL_SEPARATOR
from evaluation.metrics import r_precisions

if TYPE_CHECKING:  # importing it takes seconds
    from sklearn.linear_model import LogisticRegression

# Inverse strengths of regularisation to choose from; unit vectors need weak ones.
C_GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)

# Scores by measure, and the value of each document.
Measured = tuple[dict[str, float], list[float]]


def fit_logistic_regression(
    train_vectors: np.ndarray,
    train_labels: Sequence[str],
    dev_vectors: np.ndarray,
    dev_labels: Sequence[str],
    name: str = "",
) -> tuple[LogisticRegression, float]:
    """The logistic regression of the C with the highest accuracy on dev, the smallest of equals, and that C.

    Args:
        train_vectors, dev_vectors: (documents, hidden), in the training language.
        train_labels, dev_labels: one a document.
        name: of the progress bar.
    """
    from sklearn.linear_model import LogisticRegression

    def accuracy(C: float) -> tuple[float, LogisticRegression]:
        classifier = LogisticRegression(C=C, max_iter=10_000).fit(train_vectors, train_labels)
        return classifier.score(dev_vectors, dev_labels), classifier

    return best_of_c_grid(accuracy, name)


def fit_multilabel(
    train_vectors: np.ndarray,
    train_labels: Sequence[str],
    dev_vectors: np.ndarray,
    dev_labels: Sequence[str],
    name: str = "",
) -> tuple[Callable[[np.ndarray, Sequence[str]], Measured], float]:
    """As `fit_logistic_regression`, for texts with several labels: a logistic regression for each label, and the C with
    the highest R-precision on dev.

    Returns:
        what measures the regressions on vectors and labels (mean R-precision, micro-F1 and the number of documents, and
        the R-precision of each document), and the C.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import MultiLabelBinarizer

    def split(labels: Sequence[str]) -> list[list[str]]:
        return [label.split(LABEL_SEPARATOR) for label in labels]

    binarizer = MultiLabelBinarizer()
    targets = binarizer.fit_transform(split(train_labels))

    def measure(classifier: OneVsRestClassifier, vectors: np.ndarray, labels: Sequence[str]) -> Measured:
        wanted = binarizer.transform(split(labels))
        precisions = r_precisions(wanted, classifier.decision_function(vectors))
        micro_f1 = f1_score(wanted, classifier.predict(vectors), average="micro", zero_division=0)
        scores = {"r_precision": float(np.mean(precisions)), "micro_f1": float(micro_f1), "documents": len(labels)}
        return scores, precisions

    def r_precision(C: float) -> tuple[float, Callable[[np.ndarray, Sequence[str]], Measured]]:
        classifier = OneVsRestClassifier(LogisticRegression(C=C, max_iter=10_000)).fit(train_vectors, targets)
        return measure(classifier, dev_vectors, dev_labels)[0]["r_precision"], partial(measure, classifier)

    return best_of_c_grid(r_precision, name)


def best_of_c_grid(fit_with: Callable[[float], tuple[float, Any]], name: str) -> tuple[Any, float]:
    """The classifier with the highest score on dev and its C, the smallest of equals."""
    with progress_bar(name, len(C_GRID), unit="fit", delay=1) as progress:
        candidates = []
        for C in C_GRID:
            candidates.append((*fit_with(C), C))
            progress.update()
    _, classifier, C = max(candidates, key=lambda candidate: candidate[0])
    return classifier, C
