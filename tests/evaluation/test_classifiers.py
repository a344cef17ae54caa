"""The classifier on vectors: the choice of C, beside folds written out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from evaluation.classifiers import fit_logistic_regression


def noisy_documents(count: int) -> tuple[np.ndarray, list[str]]:
    """Unit vectors of three labels that overlap, and the labels."""
    random = np.random.default_rng(0)
    labels = random.integers(3, size=count)
    vectors = random.normal(size=(count, 8)) + 0.8 * np.eye(8)[labels]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), [f"label {label}" for label in labels]


def test_c_is_the_one_that_cross_validation_finds_best() -> None:
    vectors, labels = noisy_documents(90)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    accuracies = {}
    for C in (0.01, 1.0, 100.0):
        right = 0.0
        for train, held_out in folds.split(vectors, labels):
            fitted = LogisticRegression(C=C, max_iter=10_000).fit(vectors[train], np.array(labels)[train])
            right += fitted.score(vectors[held_out], np.array(labels)[held_out])
        accuracies[C] = right
    assert len(set(accuracies.values())) == 3
    classifier, C = fit_logistic_regression(vectors, labels, Cs=list(accuracies))
    assert accuracies[C] == max(accuracies.values())
    again = LogisticRegression(C=C, max_iter=10_000).fit(vectors, labels)  # on all documents
    np.testing.assert_allclose(classifier.coef_, again.coef_)


def test_c_is_the_smallest_of_equals() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 1.0]] * 4)
    labels = ["cats", "dogs"] * 4
    assert fit_logistic_regression(vectors, labels, Cs=[1000.0, 10.0])[1] == 10.0


@pytest.mark.filterwarnings("ignore")  # scikit-learn warns of both
def test_a_label_with_a_single_document_leaves_the_choice_to_the_other_folds() -> None:
    vectors = np.array([[1.0, 0.0]] * 9 + [[0.8, 0.6]])
    assert fit_logistic_regression(vectors, ["many"] * 9 + ["few"], Cs=[1e6, 10.0])[1] == 10.0
