"""Classifiers above frozen document vectors: logistic regression, one a label for texts with several, and the small
network by which LASER, the lightweight encoder and T-MDE report MLDoc."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from common.progress import progress_bar
from evaluation.datasets.labelled_sets import LABEL_SEPARATOR
from evaluation.metrics import r_precisions

if TYPE_CHECKING:  # importing it takes seconds
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

# Inverse strengths of regularisation to choose from; unit vectors need weak ones.
C_GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)

# The network of LASER's sent_classif.py with the settings of its tasks/mldoc: two hidden layers of 10 and 8 units with
# tanh, dropout before each layer, Adam. The last of the epochs with the highest accuracy on dev is kept. Scikit-learn's
# MLPClassifier has no dropout. All runs are trained at once.
DROPOUT = 0.2
BATCH_SIZE = 12
LEARNING_RATE = 1e-3
EPOCHS = 500
RUNS = 5


class MultilabelClassifier(NamedTuple):
    """One logistic regression a label."""

    one_vs_rest: OneVsRestClassifier
    labels: list[str]

    def targets(self, labels: Sequence[str]) -> np.ndarray:
        """(documents, labels), 1 where a document has the label."""
        column = {name: index for index, name in enumerate(self.labels)}
        targets = np.zeros((len(labels), len(column)), dtype=int)
        for row, label in enumerate(labels):
            targets[row, [column[name] for name in label.split(LABEL_SEPARATOR)]] = 1
        return targets


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
) -> tuple[MultilabelClassifier, float]:
    """As `fit_logistic_regression`, for texts with several labels: a logistic regression for each label, and the C with
    the highest R-precision on dev."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import MultiLabelBinarizer

    binarizer = MultiLabelBinarizer()
    targets = binarizer.fit_transform([label.split(LABEL_SEPARATOR) for label in train_labels])

    def r_precision(C: float) -> tuple[float, MultilabelClassifier]:
        one_vs_rest = OneVsRestClassifier(LogisticRegression(C=C, max_iter=10_000)).fit(train_vectors, targets)
        classifier = MultilabelClassifier(one_vs_rest, list(binarizer.classes_))
        precisions = r_precisions(classifier.targets(dev_labels), one_vs_rest.decision_function(dev_vectors))
        return float(np.mean(precisions)), classifier

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


class ParallelLinear(nn.Module):
    """A linear layer for each run: (runs, documents, inputs) -> (runs, documents, outputs), started as nn.Linear is."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(RUNS, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(RUNS, 1, outputs).uniform_(-bound, bound))

    def forward(self, states: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, states, self.weight)


@dataclass
class Networks:
    """The networks of all runs, each of its best epoch."""

    layers: nn.Module
    labels: list[str]

    @torch.no_grad()
    def predict(self, vectors: np.ndarray) -> list[list[str]]:
        """(documents, hidden) -> by run, the label of each document."""
        inputs = torch.tensor(vectors).expand(RUNS, -1, -1)
        guesses = self.layers.eval()(inputs).argmax(dim=-1).tolist()
        return [[self.labels[guess] for guess in run] for run in guesses]


def fit_mlp(
    train_vectors: np.ndarray,
    train_labels: Sequence[str],
    dev_vectors: np.ndarray,
    dev_labels: Sequence[str],
    name: str = "",
) -> Networks:
    """
    Args:
        train_vectors, dev_vectors: (documents, hidden), in the training language.
        train_labels, dev_labels: one a document.
        name: of the progress bar.
    """
    names = sorted(set(train_labels))
    inputs = torch.tensor(train_vectors)
    targets = torch.tensor([names.index(label) for label in train_labels])
    with torch.random.fork_rng(devices=[]), progress_bar(name, EPOCHS, unit="epoch", delay=1) as progress:
        torch.manual_seed(1)
        layers = nn.Sequential(
            nn.Dropout(DROPOUT), ParallelLinear(inputs.shape[1], 10), nn.Tanh(),
            nn.Dropout(DROPOUT), ParallelLinear(10, 8), nn.Tanh(),
            nn.Dropout(DROPOUT), ParallelLinear(8, len(names)),
        )  # fmt: skip
        optimizer = torch.optim.Adam(layers.parameters(), LEARNING_RATE)
        best = copy.deepcopy(layers)
        highest = [-1] * RUNS
        for _ in range(EPOCHS):
            layers.train()
            for rows in torch.stack([torch.randperm(len(inputs)) for _ in range(RUNS)]).split(BATCH_SIZE, dim=1):
                logits = layers(inputs[rows])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets[rows].flatten())
                optimizer.zero_grad()
                (RUNS * loss).backward()  # the sum of the runs' losses: each has the gradient it would have alone
                optimizer.step()
            guesses = Networks(layers, names).predict(dev_vectors)
            for run, run_guesses in enumerate(guesses):
                right = sum(guess == label for guess, label in zip(run_guesses, dev_labels))
                if right >= highest[run]:
                    highest[run] = right
                    with torch.no_grad():
                        for kept, weight in zip(best.parameters(), layers.parameters()):
                            kept[run] = weight[run]
            progress.update()
    return Networks(best, names)
