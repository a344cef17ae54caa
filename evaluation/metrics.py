"""Measures of labels. Those of rankings, and whatever the library evaluate can load, are in measures/."""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.measures.accuracy_and_f1.accuracy_and_f1 import AccuracyAndF1

# Scores by measure, and the value of each document.
Measured = tuple[dict[str, float], list[float]]


def accuracy_and_f1(labels: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Accuracy, and macro-F1 over the labels that occur or are predicted; one label a text."""
    return AccuracyAndF1(keep_in_memory=True).compute(predictions=predicted, references=labels)


def scores_of_labels(labels: Sequence[str], predicted: Sequence[str]) -> Measured:
    """For one label a text: accuracy, macro-F1 and the number of documents, and whether each document is right."""
    scores = accuracy_and_f1(labels, predicted) | {"documents": len(labels)}
    return scores, [float(label == guess) for label, guess in zip(labels, predicted)]
