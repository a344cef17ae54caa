"""Topics of documents across languages: a classifier learns from one language and is tested on others (paper, section
3.2).

Two protocols, whose numbers do not compare:

    frozen       document vectors as they are, a logistic regression or a small network above them trained here, from
                 every language that has labels to every other
    finetuned    models that were trained as a whole are only tested here
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
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

from common.device import device
from common.fingerprints import fingerprint
from common.progress import Advance, no_bar, progress_bar
from common.saved_models import model_type_of
from evaluation.datasets.labelled_sets import LabelledSet, LabelledTexts, check_labels, read_labelled_set
from evaluation.metrics import accuracy_and_f1, micro_f1, r_precisions
from evaluation.plots import plot_vectors
from evaluation.recipes import MEASURES, ClassificationTask
from evaluation.systems import System
from evaluation.tables import Scores, averages
from evaluation.tasks import SystemRun
from evaluation.tasks.classifiers import MultilabelClassifier, fit_logistic_regression, fit_mlp, fit_multilabel
from evaluation.vectors import cached_vectors
from modeling_hmde import HMDETokenizer
from modeling_hmde.modeling_hmde import MAX_TOKENS_PER_BUCKET
from modeling_hmde.packing_hmde import bucket_by_length

# What learns from frozen vectors.
PROTOCOLS = {
    "logistic_regression": "logistic regression, C chosen on dev of the train language",
    "mlp": "LASER's MLP, the epoch chosen on dev of the train language, mean of 5 runs",
}


# Scores by measure, and the value of each document.
Measured = tuple[dict[str, float], dict[str, float]]


def read(task: ClassificationTask) -> LabelledSet:
    """The files of a task, whose format is hmde by now.

    Raises:
        ValueError: one is missing or malformed, or has a label that a classifier does not know.
    """
    labelled = read_labelled_set(task)
    for classifier, models in task.finetuned.items():
        for model in models:
            check_labels(labelled.tests, known_labels(classifier, model), f"the model {classifier}")
    return labelled


def evaluate_system(system: System, task: ClassificationTask, data: LabelledSet, run: SystemRun) -> dict[str, Any]:
    """Everything that is reported of a system whose vectors are left as they are. Plots them too."""
    cache = run.output / "cache"
    result = evaluate_frozen(system, task, data, cache, run.document_cache_key, run.bar)
    if not task.multilabel:
        result["plot"] = f"{run.task}-{run.system}.png"
        with progress_bar(f"{run.bar}: plot", 1, "plot") as progress:
            vectors = [encode(system, test, cache, run.document_cache_key) for test in data.tests]
            plot_vectors(run.system, data.tests, vectors, run.output / "plots" / result["plot"])
            progress.update()
    return result


def known_labels(name: str, model: str) -> set[str]:
    """The labels that a saved classifier predicts.

    Raises:
        ValueError: there is no such model.
    """
    model_type_of(name, model)
    return set(AutoConfig.from_pretrained(model).label2id or ())


def evaluate_frozen(
    system: System,
    task: ClassificationTask,
    labelled: LabelledSet,
    cache: Path | None = None,
    cache_key: str = "",
    name: str = "",
) -> dict[str, Any]:
    """Everything that is reported of a system whose vectors are left as they are.

    Args:
        system: makes the vectors.
        task: what is learnt and tested.
        labelled: the task's documents.
        cache: folder of vectors; None keeps nothing.
        cache_key: of all that the vectors of documents depend on.
        name: of task and system, for progress bars.
    """
    began = time.perf_counter()
    parts = (*labelled.train, *labelled.dev, *labelled.tests)
    with progress_bar(name and f"{name}: documents", sum(len(part.texts) for part in parts)) as progress:
        vectors = {part.file: encode(system, part, cache, cache_key, progress.update) for part in parts}
    seconds = time.perf_counter() - began
    measured, chosen = learn_and_test(task, labelled, vectors, name=name)
    draws = []
    for draw in range(task.bootstrap_resamples):
        bar = name and f"{name}, draw {draw + 1} of {task.bootstrap_resamples}"
        draws.append(scores_by_row(learn_and_test(task, labelled, vectors, draw, bar)[0]))
    over_draws = f"; averages over {task.bootstrap_resamples} draws of the training documents too" if draws else ""
    return {
        "protocol": f"frozen vectors, {PROTOCOLS[task.classifier]}{over_draws}",
        **summary(task, scores_by_row(measured), {row: values for row, (_, values) in measured.items()}, draws),
        "C": chosen,
        "documents": sum(len(of_part) for of_part in vectors.values()),
        "document_seconds": seconds,
    }


def learn_and_test(
    task: ClassificationTask,
    labelled: LabelledSet,
    vectors: dict[Path, np.ndarray],
    draw: int | None = None,
    name: str = "",
) -> tuple[dict[str, Measured], dict[str, float]]:
    """From every training language to every test: what is measured, by row, and the C of each training language, if the
    classifier has one.

    Args:
        vectors: of each file, (documents, hidden).
        draw: which draw of the training documents is learned from; all of them if not given.
        name: of task and system, for progress bars.
    """
    measured: dict[str, Measured] = {}
    chosen: dict[str, float] = {}
    for train, dev in zip(labelled.train, labelled.dev):
        indices = drawn(len(train.labels), draw)
        labels = [train.labels[index] for index in indices]
        bar = name and f"{name}: classifiers from {train.language}"
        measure_on, C = learn(task, vectors[train.file][indices], labels, vectors[dev.file], dev.labels, name=bar)
        for test in labelled.tests:
            measured[f"{train.language}-{test.language}"] = measure_on(vectors[test.file], test.labels)
        if C is not None:
            chosen[train.language] = C
    return measured, chosen


def drawn(count: int, draw: int | None) -> np.ndarray:
    """Indices of training documents, the same for all systems: as many as there are, with replacement; all if there is
    no draw."""
    return np.arange(count) if draw is None else np.random.default_rng(draw).integers(count, size=count)


def scores_by_row(measured: dict[str, Measured]) -> Scores:
    return {row: scores for row, (scores, _) in measured.items()}


def learn(
    task: ClassificationTask,
    train_vectors: np.ndarray,
    train_labels: Sequence[str],
    dev_vectors: np.ndarray,
    dev_labels: Sequence[str],
    name: str,
) -> tuple[Callable[[np.ndarray, Sequence[str]], Measured], float | None]:
    """The task's classifier, as what it measures on the vectors and labels of a test; and its C, if it has one."""
    examples = (train_vectors, train_labels, dev_vectors, dev_labels)
    if task.classifier == "mlp":
        networks = fit_mlp(*examples, name=name)
        return lambda vectors, labels: mean_of_runs(
            [measure(labels, guesses) for guesses in networks.predict(vectors)]
        ), None
    if task.multilabel:
        one_a_label, C = fit_multilabel(*examples, name=name)
        return lambda vectors, labels: mean_of_runs([measure_multilabel(one_a_label, vectors, labels)]), C
    classifier, C = fit_logistic_regression(*examples, name=name)
    return lambda vectors, labels: mean_of_runs([measure(labels, list(classifier.predict(vectors)))]), C


def encode(
    system: System, part: LabelledTexts, cache: Path | None, cache_key: str, advance: Advance = no_bar
) -> np.ndarray:
    """(documents, hidden) of one file, from the cache if they are there."""
    texts = {str(index): text for index, text in enumerate(part.texts)}
    encode_texts = partial(system.encode_documents, language=part.language)
    return cached_vectors(encode_texts, texts, cache, fingerprint(cache_key, part.language), advance)


def evaluate_models(
    models: Sequence[str], task: ClassificationTask, labelled: LabelledSet, dtype: torch.dtype, bar: str = ""
) -> dict[str, Any]:
    """Everything that is reported of a classifier that was trained as a whole, once or several times. Of several runs
    the scores are means, with their standard deviations."""
    began = time.perf_counter()
    runs = [scores_of_classifier(model, labelled.tests, dtype, bar) for model in models]
    scores: Scores = {}
    per_item = {}
    for test, *measured in zip(labelled.tests, *runs):
        row = f"{task.finetuned_on[0] if len(task.finetuned_on) == 1 else 'all'}-{test.language}"
        scores[row], per_item[row] = mean_of_runs(measured)
    return {
        "protocol": f"fine-tuned on {', '.join(task.finetuned_on)}, {len(runs)} run{'s' * (len(runs) > 1)}",
        **summary(task, scores, per_item),
        "documents": sum(len(part.texts) for part in labelled.tests),
        "document_seconds": time.perf_counter() - began,
    }


def mean_of_runs(runs: Sequence[tuple[dict[str, float], list[float]]]) -> Measured:
    """Of what `measure` says of several runs on one file: the mean scores, with the standard deviations of each measure
    (`accuracy_sd`) if there are several, and the mean value of each document."""
    of_runs = [scores for scores, _ in runs]
    means = {measure: float(np.mean([scores[measure] for scores in of_runs])) for measure in of_runs[0]}
    if len(runs) > 1:
        means |= {
            f"{measure}_sd": float(np.std([scores[measure] for scores in of_runs], ddof=1)) for measure in MEASURES
        }
    of_documents = np.mean([values for _, values in runs], axis=0)
    return means, {str(index): float(value) for index, value in enumerate(of_documents)}


def scores_of_classifier(
    classifier: str, tests: Sequence[LabelledTexts], dtype: torch.dtype, name: str = ""
) -> list[tuple[dict[str, float], list[float]]]:
    """What `measure` says of a saved classifier on each test."""
    model = AutoModelForSequenceClassification.from_pretrained(classifier, dtype=dtype).to(device())
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    with progress_bar(name and f"{name}: documents", sum(len(test.texts) for test in tests)) as progress:
        predicted = [
            predict(model, tokenizer, test.texts, test.language, test.pairs, progress.update) for test in tests
        ]
    return [measure(test.labels, labels) for test, labels in zip(tests, predicted)]


def summary(
    task: ClassificationTask, scores: Scores, per_item: dict[str, dict[str, float]], draws: Sequence[Scores] = ()
) -> dict[str, Any]:
    """Scores by row, `<train language>-<test language>`, and averages: of all, of one language and across languages.
    The transfer gap is what is lost across languages. Each average over draws of the training documents is a row of its
    own. Values by item are of the first of the task's measures: of rows by document, and of averages by draw.
    """
    same = [row for row in scores if len(set(row.split("-"))) == 1]
    groups = {
        "average": list(scores),
        "average, same language": same,
        "average, across languages": [row for row in scores if row not in same],
    }
    means = averages(scores, groups, task.measures)
    if len(means) == 3:
        means["transfer gap"] = {
            measure: means["average, same language"][measure] - means["average, across languages"][measure]
            for measure in task.measures
        }
    of_draws = [averages(draw, groups, task.measures) for draw in draws]
    by_draw = {}
    for group in of_draws[0] if of_draws else ():
        row = f"{group}, {len(draws)} draws"
        means[row] = {measure: float(np.mean([draw[group][measure] for draw in of_draws])) for measure in task.measures}
        by_draw[row] = {str(number): draw[group][task.measures[0]] for number, draw in enumerate(of_draws)}
    return {
        "task_type": "text-classification",
        "measure": task.measure,
        "rows": scores,
        "averages": means,
        "per_item": {row: {task.measures[0]: values} for row, values in (per_item | by_draw).items()},
    }


@torch.inference_mode()
def predict(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    language: str,
    pairs: bool = False,
    advance: Advance = no_bar,
) -> list[str]:
    """The most probable label of each text, or pair of texts with a tab between, in the order given."""
    rows = tokenized(tokenizer, texts, language, pairs)
    lengths = torch.tensor([len(row) for row in rows["input_ids"]])
    best = torch.empty(len(lengths), dtype=torch.long)
    for batch in bucket_by_length(lengths, MAX_TOKENS_PER_BUCKET):
        of_batch = {name: [values[index] for index in batch] for name, values in rows.items()}
        inputs = tokenizer.pad(of_batch, return_tensors="pt").to(model.device)
        best[batch] = model(**inputs).logits.argmax(dim=-1).cpu()
        advance(len(batch))
    names = model.config.id2label or {}
    return [names[label] for label in best.tolist()]


def measure(labels: Sequence[str], predicted: Sequence[str]) -> tuple[dict[str, float], list[float]]:
    """Accuracy, macro-F1 and the number of documents, and whether each document is right."""
    scores = accuracy_and_f1(labels, predicted) | {"documents": len(labels)}
    return scores, [float(label == guess) for label, guess in zip(labels, predicted)]


def tokenized(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], language: str, pairs: bool = False
) -> dict[str, list[list[int]]]:
    """The inputs of each text: of an HMDE, its sentences; of another model, the beginning that it can read.

    Of a pair of texts with a tab between, an HMDE reads a document of both, another model the two in one row.
    """
    if isinstance(tokenizer, HMDETokenizer):
        rows = tokenizer([text.replace("\t", "\n") for text in texts] if pairs else list(texts), language=language)
    elif pairs:
        first, second = zip(*(text.split("\t") for text in texts))
        rows = tokenizer(list(first), list(second), truncation=True)
    else:
        rows = tokenizer(list(texts), truncation=True)
    return {name: values for name, values in rows.items() if name in ("input_ids", "token_type_ids")}


def measure_multilabel(
    classifier: MultilabelClassifier, vectors: np.ndarray, labels: Sequence[str]
) -> tuple[dict[str, float], list[float]]:
    """Mean R-precision, micro-F1 and the number of documents, and the R-precision of each document."""
    targets = classifier.targets(labels)
    precisions = r_precisions(targets, classifier.one_vs_rest.decision_function(vectors))
    scores = {
        "r_precision": float(np.mean(precisions)),
        "micro_f1": micro_f1(targets, classifier.one_vs_rest.predict(vectors)),
        "documents": len(labels),
    }
    return scores, precisions
