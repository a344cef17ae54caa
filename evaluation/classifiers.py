"""Classifiers on vectors that stay as they are. Each chooses its regularisation by cross-validation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from evaluation.datasets.labelled_sets import LABEL_SEPARATOR
from evaluation.metrics import Measured, r_precisions, scores_of_label_sets
from hmde.common.progress import progress_bar

if TYPE_CHECKING:  # importing it takes seconds
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import BaseCrossValidator, StratifiedKFold
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import SVC

FOLDS = 5

# Inverse strengths of the regularisation of a logistic regression; unit vectors need a weak one.
CS = (0.1, 1.0, 10.0, 100.0, 1000.0)
# Of a Gaussian kernel between unit vectors, exp(-gamma * (2 - 2 * cosine)). Encoders whose cosines are all high need
# large ones.
GAMMAS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


def fit_logistic_regression(
    vectors: np.ndarray, labels: Sequence[str], Cs: Sequence[float] = CS, name: str = ""
) -> LogisticRegression:
    """The logistic regression of the C with the highest accuracy in cross-validation; of several such, the smallest.

    Args:
        vectors: (documents, hidden), in the training language.
        labels: one a document.
        Cs: to choose from.
        name: of the progress bar.
    """
    from sklearn.linear_model import LogisticRegression

    def classifier(C: float) -> LogisticRegression:
        return LogisticRegression(C=C, max_iter=10_000)

    C = cross_validated(classifier, vectors, labels, _folds(labels), "accuracy", Cs, name)
    return classifier(C).fit(vectors, labels)


def fit_svm(vectors: np.ndarray, labels: Sequence[str], gammas: Sequence[float] = GAMMAS, name: str = "") -> SVC:
    """As `fit_logistic_regression`, a support vector machine with a Gaussian kernel, and the gamma with the highest
    accuracy. It follows the nearest documents, so a topic may have several parts; a linear classifier has one direction
    for each topic."""
    from sklearn.svm import SVC

    def classifier(gamma: float) -> SVC:
        return SVC(C=10.0, gamma=gamma)  # of unit vectors, a C from 3 to 100 gives nearly the same

    gamma = cross_validated(classifier, vectors, labels, _folds(labels), "accuracy", gammas, name)
    return classifier(gamma).fit(vectors, labels)


def fit_multilabel(
    vectors: np.ndarray, labels: Sequence[str], Cs: Sequence[float] = CS, name: str = ""
) -> tuple[Callable[[np.ndarray, Sequence[str]], Measured], float]:
    """As `fit_logistic_regression`, for texts with several labels: a logistic regression for each label, and the C with
    the highest R-precision.

    Returns:
        what measures the regressions on vectors and labels (mean R-precision, micro-F1 and the number of documents, and
        the R-precision of each document), and the C. A label that they have not learnt counts as one not found.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import MultiLabelBinarizer

    def split(labels: Sequence[str]) -> list[list[str]]:
        return [label.split(LABEL_SEPARATOR) for label in labels]

    def classifier(C: float) -> OneVsRestClassifier:
        return OneVsRestClassifier(LogisticRegression(C=C, max_iter=10_000))

    def r_precision(classifier: OneVsRestClassifier, vectors: np.ndarray, targets: np.ndarray) -> float:
        return float(np.mean(r_precisions(targets, classifier.decision_function(vectors))))

    def measure(vectors: np.ndarray, labels: Sequence[str]) -> Measured:
        known = list(binarizer.classes_)
        unknown = sorted({*chain(*split(labels))} - {*known})  # such as those that a bootstrap resample lacks
        wanted = MultiLabelBinarizer(classes=known + unknown).fit_transform(split(labels))
        columns = ((0, 0), (0, len(unknown)))
        predicted = np.pad(best.predict(vectors), columns)
        decisions = np.pad(best.decision_function(vectors), columns, constant_values=-np.inf)
        return scores_of_label_sets(wanted, predicted, decisions)

    binarizer = MultiLabelBinarizer()
    targets = binarizer.fit_transform(split(labels))
    folds = KFold(min(FOLDS, len(labels)), shuffle=True, random_state=0)
    C = cross_validated(classifier, vectors, targets, folds, r_precision, Cs, name)
    best = classifier(C).fit(vectors, targets)
    return measure, C


def _folds(labels: Sequence[str]) -> StratifiedKFold:
    from sklearn.model_selection import StratifiedKFold

    return StratifiedKFold(min(FOLDS, max(Counter(labels).values())), shuffle=True, random_state=0)


def cross_validated(
    classifier: Callable[[float], Any],
    vectors: np.ndarray,
    targets: Sequence[str] | np.ndarray,
    folds: BaseCrossValidator,
    scoring: str | Callable[..., float],
    candidates: Sequence[float],
    name: str,
) -> float:
    """The C or gamma whose classifiers have the highest mean score on the folds that they have not learnt from; of
    several such, the smallest. A single one is taken untried."""
    from sklearn.model_selection import cross_val_score

    if len(candidates) == 1:
        return candidates[0]
    scores = {}
    with progress_bar(name, len(candidates), unit="candidate", delay=1) as progress:
        for value in sorted(candidates):
            by_fold = cross_val_score(classifier(value), vectors, targets, cv=folds, scoring=scoring)
            scores[value] = np.nanmean(by_fold)  # nan: one of two labels has a single document, and a fold holds it out
            progress.update()
    return max(scores, key=scores.__getitem__)
