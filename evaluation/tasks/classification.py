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
from typing import TYPE_CHECKING, Any, NamedTuple

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
from evaluation.datasets.files import LABEL_SEPARATOR, check_language, read_labelled_texts
from evaluation.recipes import MEASURES, ClassificationTask
from evaluation.systems import System
from evaluation.tables import Scores, averages
from evaluation.tasks.mlp import fit_mlp
from evaluation.vectors import cached_vectors
from modeling_hmde import HMDETokenizer
from modeling_hmde.modeling_hmde import MAX_TOKENS_PER_BUCKET
from modeling_hmde.packing_hmde import bucket_by_length

if TYPE_CHECKING:  # importing it takes seconds, and only frozen vectors need it
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

# Inverse strengths of regularisation to choose from; unit vectors need weak ones.
C_GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)


# What learns from frozen vectors.
PROTOCOLS = {
    "logistic_regression": "logistic regression, C chosen on dev of the train language",
    "mlp": "LASER's MLP, the epoch chosen on dev of the train language, mean of 5 runs",
}


class LabelledTexts(NamedTuple):
    """The documents of one file, or pairs of texts with a tab between."""

    file: Path
    language: str
    labels: list[str]
    texts: list[str]
    pairs: bool = False


class LabelledSet(NamedTuple):
    """The documents of a task: training and dev documents of each train language, and those of each test."""

    train: list[LabelledTexts]
    dev: list[LabelledTexts]
    tests: list[LabelledTexts]


# Scores by measure, and the value of each document.
Measured = tuple[dict[str, float], dict[str, float]]


class MultilabelClassifier(NamedTuple):
    """One logistic regression a label."""

    one_vs_rest: OneVsRestClassifier
    labels: list[str]


def read_labelled_set(task: ClassificationTask) -> LabelledSet:
    """The files of a task, whose format is hmde by now.

    Raises:
        ValueError: one is missing or malformed, or has a label that cannot be learnt from the training documents.
    """

    def read(language: str, part: str) -> LabelledTexts:
        file = Path(task.data) / f"{language}.{part}.tsv"
        return LabelledTexts(file, language, *read_labelled_texts(file, task.text_pairs), task.text_pairs)

    for language in {*task.train_languages, *task.test_languages}:
        check_language(language)
    train, dev = ([read(language, part) for language in task.train_languages] for part in ("train", "dev"))
    tests = [read(language, "test") for language in task.test_languages]
    for part in train:
        known = set(part.labels)
        if task.multilabel:
            known = {one for label in known for one in label.split(LABEL_SEPARATOR)}
        if len(known) == 1:
            raise ValueError(f"{part.file} has no label but {known.pop()!r}; there is nothing to tell apart")
        check_labels([*dev, *tests], known, str(part.file))
    return LabelledSet(train, dev, tests)


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
    system: System,
    task: ClassificationTask,
    labelled: LabelledSet,
    cache: Path | None = None,
    maker: str = "",
    name: str = "",
) -> dict[str, Any]:
    """Everything that is reported of a system whose vectors are left as they are.

    Args:
        system: makes the vectors.
        task: what is learnt and tested.
        labelled: the task's documents.
        cache: folder of vectors; None keeps nothing.
        maker: fingerprint of all that the vectors of documents depend on.
        name: of task and system, for progress bars.
    """
    began = time.perf_counter()
    parts = (*labelled.train, *labelled.dev, *labelled.tests)
    with progress_bar(name and f"{name}: documents", sum(len(part.texts) for part in parts)) as progress:
        vectors = {part.file: encode(system, part, cache, maker, progress.update) for part in parts}
    seconds = time.perf_counter() - began
    measured, chosen = learn_and_test(task, labelled, vectors, name=name)
    draws = []
    for draw in range(task.resamples):
        bar = name and f"{name}, draw {draw + 1} of {task.resamples}"
        draws.append(scores_by_row(learn_and_test(task, labelled, vectors, draw, bar)[0]))
    over_draws = f"; averages over {task.resamples} draws of the training documents too" if draws else ""
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
    classifier, C = fit(*examples, name=name)
    return lambda vectors, labels: mean_of_runs([measure(labels, list(classifier.predict(vectors)))]), C


def encode(
    system: System, part: LabelledTexts, cache: Path | None, maker: str, advance: Advance = no_bar
) -> np.ndarray:
    """(documents, hidden) of one file, from the cache if they are there."""
    texts = {str(index): text for index, text in enumerate(part.texts)}
    encode_texts = partial(system.encode_documents, language=part.language)
    return cached_vectors(encode_texts, texts, cache, fingerprint(maker, part.language), advance)


def evaluate_finetuned(
    models: Sequence[str], task: ClassificationTask, labelled: LabelledSet, dtype: torch.dtype, name: str = ""
) -> dict[str, Any]:
    """Everything that is reported of a classifier that was trained as a whole, once or several times. Of several runs
    the scores are means, with their standard deviations."""
    began = time.perf_counter()
    runs = [scores_of_classifier(model, labelled.tests, dtype, name) for model in models]
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


def fit(
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

    return _best_of_c_grid(accuracy, name)


def fit_multilabel(
    train_vectors: np.ndarray,
    train_labels: Sequence[str],
    dev_vectors: np.ndarray,
    dev_labels: Sequence[str],
    name: str = "",
) -> tuple[MultilabelClassifier, float]:
    """As `fit`, of texts with several labels: one logistic regression a label, C chosen by R-precision on dev."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import MultiLabelBinarizer

    binarizer = MultiLabelBinarizer()
    targets = binarizer.fit_transform([label.split(LABEL_SEPARATOR) for label in train_labels])

    def r_precision(C: float) -> tuple[float, MultilabelClassifier]:
        one_vs_rest = OneVsRestClassifier(LogisticRegression(C=C, max_iter=10_000)).fit(train_vectors, targets)
        classifier = MultilabelClassifier(one_vs_rest, list(binarizer.classes_))
        return measure_multilabel(classifier, dev_vectors, dev_labels)[0]["r_precision"], classifier

    return _best_of_c_grid(r_precision, name)


def _best_of_c_grid(fit_with: Callable[[float], tuple[float, Any]], name: str) -> tuple[Any, float]:
    """The classifier with the highest score on dev and its C, the smallest of equals."""
    with progress_bar(name, len(C_GRID), unit="fit", delay=1) as progress:
        candidates = []
        for C in C_GRID:
            candidates.append((*fit_with(C), C))
            progress.update()
    _, classifier, C = max(candidates, key=lambda candidate: candidate[0])
    return classifier, C


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


def accuracy_and_f1(labels: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Accuracy and macro-F1 of one label a document."""
    from evaluation.metrics import AccuracyAndF1

    metric = AccuracyAndF1(keep_in_memory=True)  # else it passes all labels through a file that processes lock
    return metric.compute(predictions=predicted, references=labels)


def measure_multilabel(
    classifier: MultilabelClassifier, vectors: np.ndarray, labels: Sequence[str]
) -> tuple[dict[str, float], list[float]]:
    """Mean R-precision, micro-F1, and the R-precision of each document: of its R labels, the share that is among the R
    most probable."""
    from sklearn.metrics import f1_score

    column_of = {name: column for column, name in enumerate(classifier.labels)}
    targets = np.zeros((len(labels), len(column_of)), dtype=int)
    for row, label in enumerate(labels):
        targets[row, [column_of[name] for name in label.split(LABEL_SEPARATOR)]] = 1
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
