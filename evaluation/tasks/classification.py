"""Topics of documents across languages: a classifier learns from one language and is tested on others (paper, section
3.2). The vectors of documents stay as they are; the classifier above them is trained here, from every language that has
labels to every other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from evaluation.classifiers import fit_logistic_regression
from evaluation.datasets.labelled_sets import LabelledSet, LabelledTexts, read_labelled_set
from evaluation.metrics import Measured, scores_of_labels
from evaluation.recipes import MEASURES, ClassificationTask
from evaluation.systems import System
from evaluation.tables import averages
from evaluation.tasks import SystemRun
from evaluation.vectors import cached_vectors
from hmde.common.fingerprints import fingerprint
from hmde.common.progress import Advance, no_bar, progress_bar

# Trains a classifier on vectors. Returns a function that measures it on the vectors and labels of a test, and the
# option that was chosen, such as C, None if there is none.
Learn = Callable[..., tuple[Callable[[np.ndarray, Sequence[str]], Measured], float | None]]

read = read_labelled_set  # as evaluation/registry.py asks of a task's module

CHOSEN = "chosen by cross-validation on train and dev of the train language"


def learn(
    train_vectors: np.ndarray,
    train_labels: Sequence[str],
    dev_vectors: np.ndarray,
    dev_labels: Sequence[str],
    name: str,
    fit: Callable[..., Any] = fit_logistic_regression,
) -> tuple[Callable[[np.ndarray, Sequence[str]], Measured], float]:
    """A classifier that learns from training and dev documents, because its C is chosen by cross-validation on both:
    what is best on a few hundred dev documents alone is nearly chance."""
    classifier, chosen = fit(np.concatenate([train_vectors, dev_vectors]), [*train_labels, *dev_labels], name=name)
    return lambda vectors, labels: scores_of_labels(labels, list(classifier.predict(vectors))), chosen


def evaluate_system(
    system: System,
    task: ClassificationTask,
    labelled: LabelledSet,
    run: SystemRun,
    learn: Learn = learn,
    classifier: str = f"logistic regression, C {CHOSEN}",
) -> dict[str, Any]:
    """Everything that is reported of a system.

    Args:
        learn, classifier: what learns above the vectors, and its name.
    """
    parts = (*labelled.train, *labelled.dev, *labelled.tests)
    with progress_bar(f"{run.bar}: documents", sum(len(part.texts) for part in parts)) as progress:
        vectors = {part.file: encode(system, part, run, progress.update) for part in parts}
    measured: dict[str, Measured] = {}
    chosen: dict[str, float] = {}
    for train, dev in zip(labelled.train, labelled.dev):
        bar = f"{run.bar}: classifiers from {train.language}"
        measure_on, value = learn(vectors[train.file], train.labels, vectors[dev.file], dev.labels, bar)
        for test in labelled.tests:
            measured[f"{train.language}-{test.language}"] = measure_on(vectors[test.file], test.labels)
        if value is not None:
            chosen[train.language] = value
    return {"protocol": f"frozen vectors, {classifier}", **summary(task, measured), "chosen": chosen}


def encode(system: System, part: LabelledTexts, run: SystemRun, advance: Advance = no_bar) -> np.ndarray:
    """(documents, hidden) of one file, from the cache if they are there."""
    texts = {str(index): text for index, text in enumerate(part.texts)}
    encode_texts = partial(system.encode_documents, language=part.language)
    key = fingerprint(run.document_cache_key, part.language)
    return cached_vectors(encode_texts, texts, run.cache, key, advance)


def summary(task: ClassificationTask, measured: dict[str, Measured]) -> dict[str, Any]:
    """Scores by row, `<train language>-<test language>`, and averages: of all, of one language and across languages.
    The transfer gap is what is lost across languages. Values by item are the accuracy of each document."""
    same_language = [f"{language}-{language}" for language in task.train_languages]
    scores = {row: row_scores for row, (row_scores, _) in measured.items()}
    groups = {
        "average": list(scores),
        "average, same language": [row for row in scores if row in same_language],
        "average, across languages": [row for row in scores if row not in same_language],
    }
    means = averages(scores, groups, MEASURES)
    if len(means) == 3:
        means["transfer gap"] = {
            measure: means["average, same language"][measure] - means["average, across languages"][measure]
            for measure in MEASURES
        }
    return {
        "task_type": "text-classification",
        "measure": task.measure,
        "rows": scores,
        "averages": means,
        "per_item": {
            row: {MEASURES[0]: {str(number): value for number, value in enumerate(values)}}
            for row, (_, values) in measured.items()
        },
    }
