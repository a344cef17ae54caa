"""Topics of documents across languages: a classifier learns from one language and is tested on others (paper, section
3.2).

Two protocols, whose numbers do not compare:

    frozen       document vectors as they are, a classifier above them trained here, from every language that has labels
                 to every other
    finetuned    models that were trained as a whole are only tested here
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from evaluation.classifiers import fit_logistic_regression, fit_svm
from evaluation.datasets.labelled_sets import (
    LabelledSet,
    LabelledTexts,
    check_labels,
    read_labelled_set,
)
from evaluation.metrics import Measured, scores_of_labels
from evaluation.recipes import MEASURES, ClassificationTask
from evaluation.systems import System
from evaluation.tables import averages
from evaluation.tasks import SystemRun
from evaluation.vectors import cached_vectors
from hmde.common.device import device
from hmde.common.fingerprints import fingerprint
from hmde.common.progress import Advance, no_bar, progress_bar
from hmde.common.saved_models import model_type_of, opening
from modeling_hmde import HMDETokenizer
from modeling_hmde.packing_hmde import padded_batches
from modeling_hmde.sentence_reading_hmde import MAX_TOKENS_PER_BUCKET

# Trains a classifier on frozen vectors. Returns a function that measures it on the vectors and labels of a test, once
# for each run, and the C or gamma that was chosen, None if there is none.
Learn = Callable[..., tuple[Callable[[np.ndarray, Sequence[str]], list[Measured]], float | None]]

CLASSIFIERS = {
    "logistic_regression": "logistic regression, C",
    "svm": "support vector machine with a Gaussian kernel, gamma",
}
CHOSEN = "chosen by cross-validation on train and dev of the train language"


def read(task: ClassificationTask) -> LabelledSet:
    """The files of a task, whose format is hmde by now.

    Raises:
        ValueError: one is missing or malformed, or has a label that a classifier does not know; or there is no such
            classifier.
    """
    labelled = read_labelled_set(task)
    for classifier, models in task.finetuned.items():
        for model in models:
            model_type_of(classifier, model)
            known = set(AutoConfig.from_pretrained(model).label2id or ())
            check_labels(labelled.tests, known, f"the model {classifier}")
    return labelled


def learn(
    task: ClassificationTask,
    train_vectors: np.ndarray,
    train_labels: Sequence[str],
    dev_vectors: np.ndarray,
    dev_labels: Sequence[str],
    name: str,
) -> tuple[Callable[[np.ndarray, Sequence[str]], list[Measured]], float]:
    """The task's classifier. It learns from training and dev documents, because its C or gamma is chosen by
    cross-validation on both: what is best on a few hundred dev documents alone is nearly chance."""
    vectors, labels = np.concatenate([train_vectors, dev_vectors]), [*train_labels, *dev_labels]
    svm = task.classifier == "svm"
    fit: Callable[..., Any] = fit_svm if svm else fit_logistic_regression
    classifier = fit(vectors, labels, name=name)
    best = classifier.gamma if svm else classifier.C
    return lambda vectors, labels: [scores_of_labels(labels, list(classifier.predict(vectors)))], best


def evaluate_system(
    system: System,
    task: ClassificationTask,
    labelled: LabelledSet,
    run: SystemRun,
    learn: Learn = learn,
    protocol: str = "",
) -> dict[str, Any]:
    """Everything that is reported of a system whose vectors are left as they are.

    Args:
        learn, protocol: the classifier above the vectors, and what it is; if not given, the task's.
    """
    parts = (*labelled.train, *labelled.dev, *labelled.tests)
    with progress_bar(f"{run.bar}: documents", sum(len(part.texts) for part in parts)) as progress:
        vectors = {part.file: encode(system, part, run, progress.update) for part in parts}
    measured: dict[str, Measured] = {}
    chosen: dict[str, float] = {}
    for train, dev in zip(labelled.train, labelled.dev):
        bar = f"{run.bar}: classifiers from {train.language}"
        measure_on, value = learn(task, vectors[train.file], train.labels, vectors[dev.file], dev.labels, bar)
        for test in labelled.tests:
            measured[f"{train.language}-{test.language}"] = mean_of_runs(measure_on(vectors[test.file], test.labels))
        if value is not None:
            chosen[train.language] = value
    return {
        "protocol": f"frozen vectors, {protocol or f'{CLASSIFIERS[task.classifier]} {CHOSEN}'}",
        **summary(task, measured, [f"{language}-{language}" for language in task.train_languages]),
        "chosen": chosen,
    }


def encode(system: System, part: LabelledTexts, run: SystemRun, advance: Advance = no_bar) -> np.ndarray:
    """(documents, hidden) of one file, from the cache if they are there."""
    texts = {str(index): text for index, text in enumerate(part.texts)}
    encode_texts = partial(system.encode_documents, language=part.language)
    key = fingerprint(run.document_cache_key, part.language)
    return cached_vectors(encode_texts, texts, run.cache, key, advance)


def evaluate_models(
    models: Sequence[str], task: ClassificationTask, labelled: LabelledSet, dtype: torch.dtype, bar: str = ""
) -> dict[str, Any]:
    """Everything that is reported of a classifier that was trained as a whole, once or several times. The scores
    of several runs are means, with their standard deviations."""
    runs = [scores_of_classifier(model, labelled.tests, dtype, bar) for model in models]
    trained_on = task.train_languages[0]
    measured = {
        f"{trained_on}-{test.language}": mean_of_runs(list(measured_runs))
        for test, *measured_runs in zip(labelled.tests, *runs)
    }
    return {
        "protocol": f"fine-tuned on {trained_on}, {len(runs)} run{'s' * (len(runs) > 1)}",
        **summary(task, measured, [f"{trained_on}-{trained_on}"]),
    }


def mean_of_runs(runs: Sequence[Measured]) -> Measured:
    """The mean scores of the runs on one file, with the standard deviation of each measure (`accuracy_sd`) if there are
    several, and the mean value of each document."""
    scores = {measure: [run_scores[measure] for run_scores, _ in runs] for measure in runs[0][0]}
    means = {measure: float(np.mean(values)) for measure, values in scores.items()}
    if len(runs) > 1:
        means |= {f"{measure}_sd": float(np.std(scores[measure], ddof=1)) for measure in MEASURES}
    return means, np.mean([values for _, values in runs], axis=0).tolist()


def scores_of_classifier(
    classifier: str, tests: Sequence[LabelledTexts], dtype: torch.dtype, name: str = ""
) -> list[Measured]:
    """Scores of a saved classifier on each test."""
    with opening(classifier):
        model = AutoModelForSequenceClassification.from_pretrained(classifier, dtype=dtype).to(device())
        tokenizer = AutoTokenizer.from_pretrained(classifier)
    with progress_bar(name and f"{name}: documents", sum(len(test.texts) for test in tests)) as progress:
        predicted = [predict(model, tokenizer, test.texts, test.language, progress.update) for test in tests]
    return [scores_of_labels(test.labels, labels) for test, labels in zip(tests, predicted)]


def summary(task: ClassificationTask, measured: dict[str, Measured], same_language: Sequence[str]) -> dict[str, Any]:
    """Scores by row, `<train language>-<test language>`, and averages: of all, of one language and across languages.
    The transfer gap is what is lost across languages. Values by item are the accuracy of each document.

    Args:
        same_language: the rows whose test is in a language that was learnt from.
    """
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


@torch.inference_mode()
def predict(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    language: str,
    advance: Advance = no_bar,
) -> list[str]:
    """The most probable label of each text, in the order given."""
    best = torch.empty(len(texts), dtype=torch.long)
    rows = tokenized(tokenizer, texts, language)
    for batch, inputs in padded_batches(tokenizer, rows, MAX_TOKENS_PER_BUCKET):
        best[batch] = model(**inputs.to(model.device)).logits.argmax(dim=-1).cpu()
        advance(len(batch))
    names = model.config.id2label or {}
    return [names[label] for label in best.tolist()]


def tokenized(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], language: str) -> dict[str, list[list[int]]]:
    """The inputs of each text: of an HMDE, its sentences; of another model, the beginning that it can read."""
    is_hmde = isinstance(tokenizer, HMDETokenizer)
    rows = tokenizer(list(texts), language=language) if is_hmde else tokenizer(list(texts), truncation=True)
    return {name: values for name, values in rows.items() if name in ("input_ids", "sentence_ids")}
