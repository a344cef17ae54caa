"""MLDoc as LASER and T-MDE report it: a small network above frozen vectors, the mean of five
runs (tasks `mlp_classification`), on texts as LASER's script leaves them (format `replications.mldoc`)."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from evaluation.datasets.labelled_sets import LabelledSet
from evaluation.metrics import Measured, scores_of_labels
from evaluation.recipes import MEASURES, ClassificationTask
from evaluation.systems import System
from evaluation.tasks import SystemRun, classification
from evaluation.tasks.classification import read
from hmde.common.files import write_text
from hmde.common.progress import progress_bar
from replications.datasets import mldoc

__all__ = ["convert", "evaluate_system", "read"]

# What LASER's tasks/mldoc/mldoc.sh changes in the texts.
CHANGES = ((r" Co \.", " Co."), (r" Inc \. ", " Inc. "), (r"\([cC]\) Reuters Limited 199[0-9]\.", ""))

# The network of LASER's sent_classif.py with the settings of its tasks/mldoc: two hidden layers of 10 and 8 units with
# tanh, dropout before each layer, Adam. Scikit-learn's MLPClassifier has no dropout. All runs are trained at once.
DROPOUT = 0.2
BATCH_SIZE = 12
LEARNING_RATE = 1e-3
EPOCHS = 500
RUNS = 5


def convert(task: ClassificationTask, output: Path) -> None:
    mldoc.convert(task, output)
    for file in output.glob("*.tsv"):
        write_text(file, as_laser_leaves_it(file.read_text(encoding="utf-8")))


def as_laser_leaves_it(text: str) -> str:
    for pattern, replacement in CHANGES:
        text = re.sub(pattern, replacement, text)
    return text


def evaluate_system(system: System, task: ClassificationTask, data: LabelledSet, run: SystemRun) -> dict[str, Any]:
    protocol = f"LASER's MLP, the epoch chosen on dev of the train language, mean of {RUNS} runs"
    return classification.evaluate_system(system, task, data, run, learn, protocol)


def learn(
    train_vectors: np.ndarray,
    train_labels: Sequence[str],
    dev_vectors: np.ndarray,
    dev_labels: Sequence[str],
    name: str,
) -> tuple[Callable[[np.ndarray, Sequence[str]], Measured], None]:
    """See `evaluation.tasks.classification.Learn`."""
    networks = fit_mlp(train_vectors, train_labels, dev_vectors, dev_labels, name)

    def measure_on(vectors: np.ndarray, labels: Sequence[str]) -> Measured:
        return mean_of_runs([scores_of_labels(labels, guesses) for guesses in networks.predict(vectors)])

    return measure_on, None


def mean_of_runs(runs: Sequence[Measured]) -> Measured:
    """The mean scores of the runs on one file, with the standard deviation of each measure (`accuracy_sd`); and the
    mean value of each document."""
    scores = {measure: [run_scores[measure] for run_scores, _ in runs] for measure in runs[0][0]}
    means = {measure: float(np.mean(values)) for measure, values in scores.items()}
    means |= {f"{measure}_sd": float(np.std(scores[measure], ddof=1)) for measure in MEASURES}
    return means, np.mean([values for _, values in runs], axis=0).tolist()


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
    """The networks of all runs, each of the last of the epochs with the highest accuracy on dev.

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
