"""Accuracy and F1 as a metric of the library evaluate, which takes seconds to import."""

from __future__ import annotations

from collections.abc import Sequence

import datasets
import evaluate
from sklearn.metrics import accuracy_score, f1_score


class AccuracyAndF1(evaluate.Metric):
    """Accuracy, and macro-F1 over the labels that occur or are predicted. The metrics of these names that
    `evaluate.load` finds are programs on the Hub; this one is here, and says the same without a network."""

    def _info(self) -> evaluate.MetricInfo:
        label = datasets.Value("string")
        return evaluate.MetricInfo(
            description="Accuracy and macro-F1.",
            citation="",
            inputs_description="predictions, references: one label a document.",
            features=datasets.Features({"predictions": label, "references": label}),
        )

    def _compute(self, predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        return {
            "accuracy": float(accuracy_score(references, predictions)),
            "macro_f1": float(f1_score(references, predictions, average="macro")),
        }
