"""Topics of documents across languages: a classifier learns from one language and is tested on others (section 3.2).

Two protocols, whose numbers do not compare:

    frozen       document vectors as they are, a logistic regression above them trained here, from every language that
                 has labels to every other
    finetuned    models that were trained as a whole are only tested here
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import datasets
import evaluate
import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import MultiLabelBinarizer
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from evaluation.readers import check_language, read_labelled_texts
from evaluation.report import Scores, averages
from evaluation.saved_models import fingerprint, model_type_of
from evaluation.systems import Dtype, System, device
from evaluation.vectors import cached_vectors
from modeling_hmde import HMDETokenizer
from modeling_hmde.modeling_hmde import MAX_TOKENS_PER_BUCKET
from modeling_hmde.packing_hmde import bucket_by_length

MEASURES = ("accuracy", "macro_f1")
MULTILABEL_MEASURES = ("r_precision", "micro_f1")

# Inverse strengths of regularisation to choose from; unit vectors need weak ones.
C_GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)

# Between the labels of a text that has several.
LABEL_SEPARATOR = "|"


@dataclass
class ClassificationTask:
    """Labelled documents to compare systems on.

    Args:
        data: folder of <language>.<part>.tsv, label TAB text: .train.tsv and .dev.tsv of each train language,
            .test.tsv of each test language; or where its format comes from.
        test_languages: languages to test on.
        train_languages: languages that have labels to learn from.
        format: of `data`; evaluation/readers.py describes hmde, evaluation/formats.py the others.
        multilabel: whether a text may have several labels; then only vectors are tested, by R-precision and micro-F1.
        finetuned: classifiers that were trained as a whole on the first train language, by name: the folders or Hub
            names of one or more runs, whose scores are averaged.
        measure: the one in the tables; the results have all. r_precision and micro_f1 are for several labels a text.
    """

    data: str
    test_languages: list[str]
    train_languages: list[str] = field(default_factory=lambda: ["en"])
    format: str = "hmde"
    multilabel: bool = False
    finetuned: dict[str, list[str]] = field(default_factory=dict)
    measure: Literal["accuracy", "macro_f1", "r_precision", "micro_f1"] = "accuracy"

    def __post_init__(self) -> None:
        for name in ("test_languages", "train_languages"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; name at least one")
        known = MULTILABEL_MEASURES if self.multilabel else MEASURES
        if self.measure not in known:
            raise ValueError(f"measure is {self.measure}; with multilabel={self.multilabel} it is {' or '.join(known)}")

    def read(self) -> LabelledSet:
        """The files, whose format is hmde by now.

        Raises:
            ValueError: one is missing or malformed, or has a label that cannot be learnt from the training documents.
        """
        for language in {*self.train_languages, *self.test_languages}:
            check_language(language)
        train, dev = ([self._read(language, part) for language in self.train_languages] for part in ("train", "dev"))
        tests = [self._read(language, "test") for language in self.test_languages]
        for part in train:
            check_labels([*dev, *tests], {one for label in part.labels for one in self.split(label)}, str(part.file))
        return LabelledSet(train, dev, tests)

    def _read(self, language: str, part: str) -> LabelledTexts:
        file = Path(self.data) / f"{language}.{part}.tsv"
        return LabelledTexts(file, language, *read_labelled_texts(file))

    def split(self, label: str) -> list[str]:
        """The labels that stand in the label field of a text."""
        return label.split(LABEL_SEPARATOR) if self.multilabel else [label]


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


class LabelledTexts(NamedTuple):
    """The documents of one file."""

    file: Path
    language: str
    labels: list[str]
    texts: list[str]


class LabelledSet(NamedTuple):
    """The documents of a task: training and dev documents of each train language, and those of each test."""

    train: list[LabelledTexts]
    dev: list[LabelledTexts]
    tests: list[LabelledTexts]


class MultilabelClassifier(NamedTuple):
    """One logistic regression a label."""

    one_vs_rest: OneVsRestClassifier
    labels: list[str]


def check_labels(files: Sequence[LabelledTexts], known: set[str], known_by: str) -> None:
    """Raises:
    ValueError: a file has a label that cannot be predicted.
    """
    for texts in files:
        for label in texts.labels:
            if label not in known and not set(label.split(LABEL_SEPARATOR)) <= known:
                raise ValueError(
                    f"{texts.file} has the label {label!r}, which {known_by} does not know: it knows "
                    f"{', '.join(sorted(known))}; use the same labels in all files"
                )


def labels_of(name: str, model: str) -> set[str]:
    """The labels that a saved classifier predicts.

    Raises:
        ValueError: there is no such model.
    """
    model_type_of(name, model)
    return set(AutoConfig.from_pretrained(model).label2id or ())


def evaluate_frozen(
    system: System, task: ClassificationTask, labelled: LabelledSet, cache: Path | None = None, maker: str = ""
) -> dict[str, Any]:
    """Everything that is reported of a system whose vectors are left as they are.

    Args:
        system: makes the vectors.
        task: what is learnt and tested.
        labelled: the task's documents.
        cache: folder of vectors; None keeps nothing.
        maker: the system's fingerprint.
    """
    began = time.perf_counter()
    parts = (*labelled.train, *labelled.dev, *labelled.tests)
    vectors = {part.file: encode(system, part, cache, maker) for part in parts}
    seconds = time.perf_counter() - began
    scores: Scores = {}
    per_item: dict[str, dict[str, float]] = {}
    chosen: dict[str, float] = {}
    for train, dev in zip(labelled.train, labelled.dev):
        examples = (vectors[train.file], train.labels, vectors[dev.file], dev.labels)
        classifier: Any
        classifier, chosen[train.language] = fit_multilabel(*examples) if task.multilabel else fit(*examples)
        for test in labelled.tests:
            row = f"{train.language}-{test.language}"
            if task.multilabel:
                scores[row], values = measure_multilabel(classifier, vectors[test.file], test.labels)
            else:
                scores[row], values = measure(test.labels, list(classifier.predict(vectors[test.file])))
            per_item[row] = {str(place): value for place, value in enumerate(values)}
    return {
        "protocol": "frozen vectors, logistic regression, C chosen on dev of the train language",
        **summary(task, scores, per_item),
        "C": chosen,
        "documents": sum(len(found) for found in vectors.values()),
        "document_seconds": seconds,
    }


def encode(system: System, part: LabelledTexts, cache: Path | None, maker: str) -> np.ndarray:
    """(documents, hidden) of one file, from the cache if they are there."""
    texts = {str(place): text for place, text in enumerate(part.texts)}
    encode_texts = partial(system.encode_documents, language=part.language)
    return cached_vectors(encode_texts, texts, cache, fingerprint(maker, part.language))


def evaluate_finetuned(
    models: Sequence[str], task: ClassificationTask, labelled: LabelledSet, dtype: Dtype
) -> dict[str, Any]:
    """Everything that is reported of a classifier that was trained as a whole, once or several times. Of several runs
    the scores are means, with their standard deviations."""
    began = time.perf_counter()
    runs = [scores_of_classifier(model, labelled.tests, dtype) for model in models]
    scores: Scores = {}
    per_item = {}
    for test, *found in zip(labelled.tests, *runs):
        row = f"{task.train_languages[0]}-{test.language}"
        by_run = {name: [measured[name] for measured, _ in found] for name in MEASURES}
        scores[row] = {name: float(np.mean(values)) for name, values in by_run.items()}
        if len(found) > 1:
            scores[row] |= {f"{name}_sd": float(np.std(values, ddof=1)) for name, values in by_run.items()}
        scores[row]["documents"] = len(test.labels)
        values_of_items = np.mean([values for _, values in found], axis=0)
        per_item[row] = {str(place): float(value) for place, value in enumerate(values_of_items)}
    return {
        "protocol": f"fine-tuned on {task.train_languages[0]}, {len(runs)} run{'s' * (len(runs) > 1)}",
        **summary(task, scores, per_item),
        "documents": sum(len(part.texts) for part in labelled.tests),
        "document_seconds": time.perf_counter() - began,
    }


def scores_of_classifier(
    name: str, tests: Sequence[LabelledTexts], dtype: Dtype
) -> list[tuple[dict[str, float], list[float]]]:
    """What `measure` says of a saved classifier on each test."""
    model = AutoModelForSequenceClassification.from_pretrained(name, dtype=dtype).to(device())
    tokenizer = AutoTokenizer.from_pretrained(name)
    return [measure(test.labels, predict(model, tokenizer, test.texts, test.language)) for test in tests]


def summary(task: ClassificationTask, scores: Scores, per_item: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Scores by row, `<train language>-<test language>`, and averages: of all, of one language and across languages.
    The transfer gap is what is lost across languages. Values by item: of the first of the task's measures."""
    measures = MULTILABEL_MEASURES if task.multilabel else MEASURES
    same = [row for row in scores if len(set(row.split("-"))) == 1]
    groups = {
        "average": list(scores),
        "average, same language": same,
        "average, across languages": [row for row in scores if row not in same],
    }
    found = averages(scores, groups, measures)
    if len(found) == 3:
        found["transfer gap"] = {
            name: found["average, same language"][name] - found["average, across languages"][name] for name in measures
        }
    by_item = MULTILABEL_MEASURES[0] if task.multilabel else MEASURES[0]
    return {"rows": scores, "averages": found, "per_item": {row: {by_item: values} for row, values in per_item.items()}}


def fit(
    train_vectors: np.ndarray, train_labels: Sequence[str], dev_vectors: np.ndarray, dev_labels: Sequence[str]
) -> tuple[LogisticRegression, float]:
    """The logistic regression of the C with the highest accuracy on dev, the smallest of equals, and that C.

    Args:
        train_vectors, dev_vectors: (documents, hidden), in the training language.
        train_labels, dev_labels: one a document.
    """
    candidates = [LogisticRegression(C=C, max_iter=10_000).fit(train_vectors, train_labels) for C in C_GRID]
    best = max(candidates, key=lambda classifier: classifier.score(dev_vectors, dev_labels))
    return best, best.C


def fit_multilabel(
    train_vectors: np.ndarray, train_labels: Sequence[str], dev_vectors: np.ndarray, dev_labels: Sequence[str]
) -> tuple[MultilabelClassifier, float]:
    """As `fit`, of texts with several labels: one logistic regression a label, C chosen by R-precision on dev."""
    binarizer = MultiLabelBinarizer()
    targets = binarizer.fit_transform([label.split(LABEL_SEPARATOR) for label in train_labels])
    candidates = {
        C: MultilabelClassifier(
            OneVsRestClassifier(LogisticRegression(C=C, max_iter=10_000)).fit(train_vectors, targets),
            list(binarizer.classes_),
        )
        for C in C_GRID
    }
    best = max(C_GRID, key=lambda C: measure_multilabel(candidates[C], dev_vectors, dev_labels)[0]["r_precision"])
    return candidates[best], best


@torch.inference_mode()
def predict(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], language: str
) -> list[str]:
    """The most probable label of each text, in the order given."""
    rows = token_ids(tokenizer, texts, language)
    best = torch.empty(len(rows), dtype=torch.long)
    for batch in bucket_by_length(torch.tensor([len(row) for row in rows]), MAX_TOKENS_PER_BUCKET):
        inputs = tokenizer.pad({"input_ids": [rows[place] for place in batch]}, return_tensors="pt").to(model.device)
        best[batch] = model(**inputs).logits.argmax(dim=-1).cpu()
    names = model.config.id2label or {}
    return [names[label] for label in best.tolist()]


def measure(labels: Sequence[str], predicted: Sequence[str]) -> tuple[dict[str, float], list[float]]:
    """Accuracy, macro-F1 and the number of documents, and whether each document is right."""
    scores = accuracy_and_f1(labels, predicted) | {"documents": len(labels)}
    return scores, [float(label == guess) for label, guess in zip(labels, predicted)]


def token_ids(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], language: str) -> list[list[int]]:
    """The tokens of each text: of an HMDE, of its sentences; of another model, of the beginning that it can read."""
    reading: dict[str, Any] = {"language": language} if isinstance(tokenizer, HMDETokenizer) else {"truncation": True}
    return tokenizer(list(texts), **reading)["input_ids"]


def accuracy_and_f1(labels: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Accuracy and macro-F1 of one label a document."""
    metric = AccuracyAndF1(keep_in_memory=True)  # else it passes all labels through a file that processes lock
    return metric.compute(predictions=predicted, references=labels)


def measure_multilabel(
    classifier: MultilabelClassifier, vectors: np.ndarray, labels: Sequence[str]
) -> tuple[dict[str, float], list[float]]:
    """Mean R-precision, micro-F1, and the R-precision of each document: of its R labels, the share that is among the R
    most probable."""
    places = {name: place for place, name in enumerate(classifier.labels)}
    targets = np.zeros((len(labels), len(places)), dtype=int)
    for row, label in enumerate(labels):
        targets[row, [places[name] for name in label.split(LABEL_SEPARATOR)]] = 1
    decisions = classifier.one_vs_rest.decision_function(vectors)
    ranked = np.argsort(-decisions, axis=1, kind="stable")
    precisions = [float(relevant[order[: relevant.sum()]].mean()) for relevant, order in zip(targets, ranked)]
    predicted = classifier.one_vs_rest.predict(vectors)
    scores = {
        "r_precision": float(np.mean(precisions)),
        "micro_f1": float(f1_score(targets, predicted, average="micro", zero_division=0)),
        "documents": len(labels),
    }
    return scores, precisions
