"""The support vector machine: the choice of gamma, beside folds written out, and its scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from evaluation.classifiers import fit_logistic_regression
from replications.evaluate import main
from replications.topics.svm import GAMMAS, fit_svm
from tests.evaluation.running import evaluated
from tests.evaluation.test_classifiers import noisy_documents
from tests.evaluation.topics import AVERAGES, ENGLISH, FRENCH, write_topics


def test_the_scores_are_those_worked_out_by_hand(tmp_path: Path, labse: Path) -> None:
    recipe = {
        "output": str(tmp_path / "out"),
        "systems": {"base": {"kind": "first", "model": str(labse), "pooling": "mean"}},
        "svm_classification": {"topics": {"data": write_topics(tmp_path / "data"), "test_languages": ["en", "fr"]}},
    }
    found = evaluated(recipe, command=main)["tasks"]["topics"]["base"]
    assert found["rows"] == {"en-en": ENGLISH, "en-fr": FRENCH}
    assert found["averages"] == AVERAGES
    assert found["chosen"] == {"en": 0.5}
    assert found["protocol"].startswith(
        "frozen vectors, support vector machine with a Gaussian kernel, gamma chosen by"
    )


def test_gamma_is_the_one_that_cross_validation_finds_best() -> None:
    vectors, labels = noisy_documents(90)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    accuracies = {}
    for gamma in GAMMAS:
        right = 0.0
        for train, held_out in folds.split(vectors, labels):
            squares = np.square(vectors[held_out][:, None] - vectors[train]).sum(axis=2)
            between = np.square(vectors[train][:, None] - vectors[train]).sum(axis=2)
            fitted = SVC(C=10.0, kernel="precomputed").fit(np.exp(-gamma * between), np.array(labels)[train])
            right += fitted.score(np.exp(-gamma * squares), np.array(labels)[held_out])
        accuracies[gamma] = right
    best = max(accuracies.values())
    assert fit_svm(vectors, labels)[1] == min(gamma for gamma in GAMMAS if accuracies[gamma] == best)
    assert min(accuracies.values()) < best


def test_a_topic_of_two_parts_is_learnt_by_the_svm_alone() -> None:
    random = np.random.default_rng(0)
    directions = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]]).repeat(20, axis=0)
    vectors = directions + 0.1 * random.normal(size=directions.shape)
    labels = [*40 * ["cats"], *40 * ["dogs"]]
    assert fit_svm(vectors, labels)[0].score(vectors, labels) == 1
    assert fit_logistic_regression(vectors, labels)[0].score(vectors, labels) < 0.8
