"""The classifier on vectors that stay as they are. Its regularisation is chosen by cross-validation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hmde.common.progress import progress_bar

if TYPE_CHECKING:  # importing it takes seconds
    from sklearn.linear_model import LogisticRegression

FOLDS = 5

# Inverse strengths of the regularisation of a logistic regression; unit vectors need a weak one.
CS = (0.1, 1.0, 10.0, 100.0, 1000.0)


def fit_logistic_regression(
    vectors: np.ndarray, labels: Sequence[str], Cs: Sequence[float] = CS, name: str = ""
) -> tuple[LogisticRegression, float]:
    """The logistic regression of the C with the highest accuracy in cross-validation; of several such, the smallest.

    Args:
        vectors: (documents, hidden), in the training language.
        labels: one a document.
        Cs: to choose from.
        name: of the progress bar.

    Returns:
        the classifier, and its C.
    """
    from sklearn.linear_model import LogisticRegression

    def classifier(C: float) -> LogisticRegression:
        return LogisticRegression(C=C, max_iter=10_000)

    C = cross_validated(classifier, vectors, labels, Cs, name)
    return classifier(C).fit(vectors, labels), C


def cross_validated(
    classifier: Callable[[float], Any],
    vectors: np.ndarray,
    labels: Sequence[str],
    candidates: Sequence[float],
    name: str,
) -> float:
    """The candidate, such as a C, whose classifiers have the highest mean accuracy on the folds that they have not
    learnt from; of several such, the smallest."""
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    scores = {}
    folds = StratifiedKFold(min(FOLDS, max(Counter(labels).values())), shuffle=True, random_state=0)
    with progress_bar(name, len(candidates), unit="candidate", delay=1) as progress:
        for value in sorted(candidates):
            by_fold = cross_val_score(classifier(value), vectors, labels, cv=folds, scoring="accuracy")
            scores[value] = np.nanmean(by_fold)  # nan: one of two labels has a single document, and a fold holds it out
            progress.update()
    return max(scores, key=scores.__getitem__)
