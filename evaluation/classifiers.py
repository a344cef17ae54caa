"""Classifiers on vectors that stay as they are. Each chooses its regularisation by cross-validation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hmde.common.progress import progress_bar

if TYPE_CHECKING:  # importing it takes seconds
    from sklearn.linear_model import LogisticRegression
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

    C = cross_validated(classifier, vectors, labels, Cs, name)
    return classifier(C).fit(vectors, labels)


def fit_svm(vectors: np.ndarray, labels: Sequence[str], gammas: Sequence[float] = GAMMAS, name: str = "") -> SVC:
    """As `fit_logistic_regression`, a support vector machine with a Gaussian kernel, and the gamma with the highest
    accuracy. It follows the nearest documents, so a topic may have several parts; a linear classifier has one direction
    for each topic."""
    from sklearn.svm import SVC

    def classifier(gamma: float) -> SVC:
        return SVC(C=10.0, gamma=gamma)  # of unit vectors, a C from 3 to 100 gives nearly the same

    gamma = cross_validated(classifier, vectors, labels, gammas, name)
    return classifier(gamma).fit(vectors, labels)


def cross_validated(
    classifier: Callable[[float], Any],
    vectors: np.ndarray,
    labels: Sequence[str],
    candidates: Sequence[float],
    name: str,
) -> float:
    """The C or gamma whose classifiers have the highest mean accuracy on the folds that they have not learnt from; of
    several such, the smallest."""
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    scores = {}
    folds = StratifiedKFold(min(FOLDS, max(Counter(labels).values())), shuffle=True, random_state=0)
    with progress_bar(name, len(candidates), unit="candidate", delay=1) as progress:
        for value in sorted(candidates):
            by_fold = cross_val_score(classifier(value), vectors, labels, cv=folds, scoring="accuracy")
            scores[value] = np.nanmean(by_fold)  # nan: one of two labels has a single document, and a fold holds it out
            progress.update()
    return max(scores, key=scores.__getitem__)
