"""Classifiers that were trained as a whole, as by finetune.py, and are only tested here (kind `classifier`, of tasks
`finetuned_classification` alone)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from evaluation.datasets.labelled_sets import LabelledSet, check_labels, read_labelled_set
from evaluation.metrics import Measured, scores_of_labels
from evaluation.recipes import ClassificationTask, SystemOptions
from evaluation.tasks import SystemRun
from evaluation.tasks.classification import summary
from hmde.common.device import device
from hmde.common.progress import Advance, no_bar, progress_bar
from hmde.common.saved_models import model_type_of, opening
from modeling_hmde import HMDETokenizer
from modeling_hmde.packing_hmde import padded_batches
from modeling_hmde.sentence_reading_hmde import MAX_TOKENS_PER_BUCKET


class Classifier(NamedTuple):
    """A model on its device, in its dtype, and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    @torch.inference_mode()
    def predict(self, texts: Sequence[str], language: str, advance: Advance = no_bar) -> list[str]:
        """The most probable label of each text, in the order given."""
        best = torch.empty(len(texts), dtype=torch.long)
        rows = tokenized(self.tokenizer, texts, language)
        for batch, inputs in padded_batches(self.tokenizer, rows, MAX_TOKENS_PER_BUCKET):
            best[batch] = self.model(**inputs.to(self.model.device)).logits.argmax(dim=-1).cpu()
            advance(len(batch))
        names = self.model.config.id2label or {}
        return [names[label] for label in best.tolist()]


def check(name: str, options: SystemOptions) -> None:
    """Raises:
    ValueError: the model cannot be found.
    """
    model_type_of(name, options.model)


def load(options: SystemOptions, dtype: torch.dtype) -> Classifier:
    with opening(options.model):
        model = AutoModelForSequenceClassification.from_pretrained(options.model, dtype=dtype).to(device())
        return Classifier(model, AutoTokenizer.from_pretrained(options.model))


def read(task: ClassificationTask) -> LabelledSet:
    """The files of a task, whose format is hmde by now.

    Raises:
        ValueError: one is missing or malformed, or has a label that a classifier does not know.
    """
    labelled = read_labelled_set(task)
    for name, system in task.systems.items():
        known = set(AutoConfig.from_pretrained(system.model).label2id or ())
        check_labels(labelled.tests, known, f"the model {name}")
    return labelled


def evaluate_system(
    system: Classifier, task: ClassificationTask, labelled: LabelledSet, run: SystemRun
) -> dict[str, Any]:
    trained_on = task.train_languages[0]
    measured: dict[str, Measured] = {}
    with progress_bar(f"{run.bar}: documents", sum(len(test.texts) for test in labelled.tests)) as progress:
        for test in labelled.tests:
            predicted = system.predict(test.texts, test.language, progress.update)
            measured[f"{trained_on}-{test.language}"] = scores_of_labels(test.labels, predicted)
    return {"protocol": f"fine-tuned on {trained_on}", **summary(task, measured)}


def tokenized(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], language: str) -> dict[str, list[list[int]]]:
    """The inputs of each text: of an HMDE, its sentences; of another model, the beginning that it can read."""
    is_hmde = isinstance(tokenizer, HMDETokenizer)
    rows = tokenizer(list(texts), language=language) if is_hmde else tokenizer(list(texts), truncation=True)
    return {name: values for name, values in rows.items() if name in ("input_ids", "sentence_ids")}
