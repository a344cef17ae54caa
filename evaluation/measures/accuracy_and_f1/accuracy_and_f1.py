"""Accuracy and macro-F1 of one label a text. A module of the library evaluate, by itself:

evaluate.load("evaluation/measures/accuracy_and_f1").compute(predictions=["a", "b"], references=["a", "a"])
"""

from __future__ import annotations

from collections.abc import Sequence

import datasets
import evaluate

INPUTS = """
Args:
    predictions, references: the label of each text, a string.

Returns:
    accuracy, and macro_f1, the mean over the labels that occur or are predicted.
"""


class AccuracyAndF1(evaluate.Metric):
    """What `evaluate.load` gives."""

    def _info(self) -> evaluate.MetricInfo:
        label = datasets.Value("string")
        return evaluate.MetricInfo(
            description="Accuracy and macro-F1 of one label a text.",
            citation="",
            inputs_description=INPUTS,
            features=datasets.Features({"predictions": label, "references": label}),
        )

    def _compute(self, predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        from sklearn.metrics import accuracy_score, f1_score  # takes seconds to import

        return {
            "accuracy": float(accuracy_score(references, predictions)),
            "macro_f1": float(f1_score(references, predictions, average="macro")),
        }
