"""The small network above frozen vectors by which LASER, the lightweight encoder and T-MDE report MLDoc.

As in LASER's sent_classif.py with the settings of its tasks/mldoc: two hidden layers of 10 and 8 units, tanh, dropout
of 0.2 before each layer, batches of 12, Adam with a learning rate of 0.001, 500 epochs, of which the last with the
highest accuracy on dev is kept. Scikit-learn's MLPClassifier has no dropout. All runs are trained at once.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from common.progress import progress_bar

DROPOUT = 0.2
BATCH_SIZE = 12
LEARNING_RATE = 1e-3
EPOCHS = 500
RUNS = 5


class LinearOfRuns(nn.Module):
    """A linear layer of each run: (runs, documents, inputs) -> (runs, documents, outputs), started as nn.Linear is."""

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
        return [[self.labels[guess] for guess in of_run] for of_run in guesses]


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
            nn.Dropout(DROPOUT), LinearOfRuns(inputs.shape[1], 10), nn.Tanh(),
            nn.Dropout(DROPOUT), LinearOfRuns(10, 8), nn.Tanh(),
            nn.Dropout(DROPOUT), LinearOfRuns(8, len(names)),
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
            for run, of_run in enumerate(guesses):
                right = sum(guess == label for guess, label in zip(of_run, dev_labels))
                if right >= highest[run]:
                    highest[run] = right
                    with torch.no_grad():
                        for kept, weight in zip(best.parameters(), layers.parameters()):
                            kept[run] = weight[run]
            progress.update()
    return Networks(best, names)
