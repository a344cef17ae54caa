"""A support vector machine above vectors that stay as they are (tasks `svm_classification`). Its kernel is Gaussian, so
a topic may have several parts; its time grows with the square of the number of documents."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from evaluation.classifiers import cross_validated
from evaluation.datasets.labelled_sets import LabelledSet
from evaluation.recipes import ClassificationTask
from evaluation.systems import System
from evaluation.tasks import SystemRun, classification
from evaluation.tasks.classification import read

if TYPE_CHECKING:  # importing it takes seconds
    from sklearn.svm import SVC

__all__ = ["evaluate_system", "read"]

# Of a Gaussian kernel between unit vectors, exp(-gamma * (2 - 2 * cosine)). Encoders whose cosines are all high need
# large ones.
GAMMAS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


def evaluate_system(system: System, task: ClassificationTask, data: LabelledSet, run: SystemRun) -> dict[str, Any]:
    name = f"support vector machine with a Gaussian kernel, gamma {classification.CHOSEN}"
    return classification.evaluate_system(system, task, data, run, partial(classification.learn, fit=fit_svm), name)


def fit_svm(
    vectors: np.ndarray, labels: Sequence[str], gammas: Sequence[float] = GAMMAS, name: str = ""
) -> tuple[SVC, float]:
    """As `fit_logistic_regression`, a support vector machine, and the gamma with the highest accuracy. It follows the
    nearest documents, so a topic may have several parts; a linear classifier has one direction for each topic."""
    from sklearn.svm import SVC

    def classifier(gamma: float) -> SVC:
        return SVC(C=10.0, gamma=gamma)  # of unit vectors, a C from 3 to 100 gives nearly the same

    gamma = cross_validated(classifier, vectors, labels, gammas, name)
    return classifier(gamma).fit(vectors, labels), gamma
