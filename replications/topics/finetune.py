"""Fine-tune a model as a classifier in one language and test it in others (paper, section 3.2 and appendix A.1).

    accelerate launch replications/topics/finetune.py --config configuration/finetune/mldoc.yaml [--key value ...]

Reads files in MLDoc's format, `<language>.<part>.tsv`, label TAB text, or a data set as it is published; writes a model
folder ready for the Hub, its scores in results.json, and beside it a training folder with checkpoints, from which
`--resume true` resumes. The model is an HMDE, or a baseline: any encoder that transformers knows, which reads the
beginning of a document or, with `windows`, all of it; or a Longformer of replications/longformer/, whose first token
sees all of it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hmde.common.threads

import numpy as np
from datasets import Dataset, concatenate_datasets
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    EarlyStoppingCallback,
    EvalPrediction,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerState,
    set_seed,
)
from transformers.trainer_utils import IntervalStrategy, PredictionOutput, SaveStrategy

from evaluation.datasets import converted
from evaluation.datasets.labelled_sets import LabelledTexts, check_labels, read_part
from evaluation.metrics import accuracy_and_f1
from evaluation.recipes import MEASURES, ClassificationTask
from evaluation.systems.pieces import MEAN_OF_PIECES
from evaluation.tables import Scores, averages
from hmde.common.command_line import options_from, run
from hmde.common.numbers import PositiveFloat, PositiveInt
from hmde.common.saved_models import model_type_of, opening
from modeling_hmde import HMDEConfig, HMDEForSequenceClassification, HMDETokenizer
from modeling_hmde.encoders_hmde import longest_text
from replications.topics.finetuned import tokenized
from replications.trainer_runs import TrainerArguments, check_run, recipe_of_run, trainer_run, write_model
from training.loop.checkpoints import training_folder
from training.model_card import as_yaml, card_data, write_card


@dataclass
class ClassifierArguments(TrainerArguments):
    """Arguments of transformers' Trainer; the defaults are the paper's (appendix A.1)."""

    num_train_epochs: PositiveFloat = 50
    per_device_train_batch_size: int = 4
    gradient_accumulation_steps: int = 8
    per_device_eval_batch_size: int = 16
    learning_rate: float = 2e-5
    warmup_steps: float = 200
    max_grad_norm: float = 0.0  # not clipped, as in the authors' code
    eval_strategy: IntervalStrategy | str = "epoch"
    logging_strategy: IntervalStrategy | str = "epoch"
    save_strategy: SaveStrategy | str = "epoch"
    load_best_model_at_end: bool = True
    metric_for_best_model: str | None = "loss"
    restore_callback_states_from_checkpoint: bool = True  # how much patience is left


@dataclass
class FinetuneRecipe:
    """A fine-tuning run; the defaults are the paper's."""

    model: str
    """Folder or Hub name of a pretrained HMDE, or of an encoder to compare with it. All weights are trained."""

    data: str
    """Folder of <language>.<part>.tsv: .train.tsv and .dev.tsv of each train language, and .test.tsv of each test
    language; or whatever its format reads."""

    output: str
    """Folder of the finished model, ready for the Hub. Checkpoints and logs go to `<output>-training`."""

    train_languages: list[str] = field(default_factory=lambda: ["en"])
    """Languages of the training and dev documents."""

    test_languages: list[str] = field(default_factory=list)
    """Languages to test in."""

    format: str = "hmde"
    """Format of `data`, as in a ClassificationTask of an evaluation."""

    windows: bool = False
    """Classify the mean vector of a document's windows of 128 tokens, at most 32, that overlap by a third. The model is
    a sentence encoder, read by its first token (LaBSE-Seg; paper, section 3.3)."""

    max_sentences: PositiveInt | None = None
    """Most sentences of a document that the classifier reads; as many as the model if not given. A step of training
    holds the activations of whole documents: the 2,048 sentences that the released model reads may be too many."""

    early_stopping_patience: PositiveInt | None = 7
    """Training stops after this many evaluations on dev without a better one; null does not stop early."""

    resume: bool = False
    """Resume from the last whole checkpoint of this output."""

    trainer: ClassifierArguments = field(default_factory=ClassifierArguments)
    """Learning rate, batches, epochs, `metric_for_best_model` and the other arguments of transformers' Trainer."""

    def __post_init__(self) -> None:
        metric, known = self.trainer.metric_for_best_model, ("loss", *MEASURES)
        if metric is not None and metric.removeprefix("eval_") not in known:
            raise ValueError(f"trainer.metric_for_best_model is {metric!r}; it must be one of {', '.join(known)}")
        if self.early_stopping_patience is not None and metric is None:
            raise ValueError(
                f"early_stopping_patience is {self.early_stopping_patience}, but "
                "trainer.metric_for_best_model is null, so that no evaluation is the best; name one, or give "
                "early_stopping_patience null"
            )
        chooses = self.early_stopping_patience is not None or self.trainer.load_best_model_at_end
        if chooses and self.trainer.eval_strategy == IntervalStrategy.NO:
            raise ValueError(
                "trainer.eval_strategy is no, and without evaluation no step is the best; evaluate, or give "
                "trainer.load_best_model_at_end false and early_stopping_patience null"
            )


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(FinetuneRecipe, argv)
    with trainer_run(recipe.trainer, recipe.output, recipe.resume) as checkpoint:
        fine_tune(recipe, checkpoint)


def fine_tune(recipe: FinetuneRecipe, checkpoint: str | None) -> None:
    """
    Args:
        checkpoint: to resume from, if any.

    Raises:
        ValueError: the model or the data are not what the recipe says, or not those of the run that is resumed.
    """
    is_hmde = model_type_of("model", recipe.model) == HMDEConfig.model_type
    if is_hmde and recipe.windows:
        raise ValueError(f"{recipe.model} is an HMDE, which reads sentences; leave windows out, or name its encoder")
    if not is_hmde and recipe.max_sentences is not None:
        raise ValueError(f"max_sentences is given, but {recipe.model} is no HMDE and reads no sentences; leave it out")
    train, dev, tests = read(recipe)
    check_run(recipe, [documents.file for documents in (*train, *dev)])
    labels = sorted({label for documents in train for label in documents.labels})
    set_seed(recipe.trainer.seed)  # the classifier starts at random
    model, tokenizer = windows_classifier(recipe, labels) if recipe.windows else classifier(recipe, labels)
    # The classifiers of transformers take what Trainer says of an accumulated batch, and take no notice of it.
    model.accepts_loss_kwargs = False
    trainer = Trainer(
        model=model,
        args=recipe.trainer,
        train_dataset=concatenate_datasets([encode(documents, tokenizer, labels) for documents in train]),
        eval_dataset=concatenate_datasets([encode(documents, tokenizer, labels) for documents in dev]),
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=measure,
        callbacks=[EarlyStoppingCallback(recipe.early_stopping_patience)] if recipe.early_stopping_patience else [],
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    scores = {  # of the best model, if the Trainer has put it back
        documents.file.stem: measure(trainer.predict(encode(documents, tokenizer, labels)))
        for documents in (*dev, *tests)
    }
    if trainer.is_world_process_zero():
        scores |= averages_of(recipe, scores)
        epochs = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
        hmde = is_hmde or recipe.windows
        card = functools.partial(write_classifier_card, recipe, labels, trainer.state, scores, hmde)
        write_model(recipe, model, tokenizer, {"scores": scores, "epochs": epochs}, card)


def classifier(recipe: FinetuneRecipe, labels: Sequence[str]) -> tuple[Any, PreTrainedTokenizerBase]:
    """The recipe's model with an untrained classifier above, and its tokenizer."""
    with opening(recipe.model, "model"):
        limits = {} if recipe.max_sentences is None else {"max_sentences": recipe.max_sentences}
        tokenizer = AutoTokenizer.from_pretrained(recipe.model, **limits)
        model = AutoModelForSequenceClassification.from_pretrained(recipe.model, dtype="float32", **label_names(labels))
    if model.config.model_type != "hmde":  # some tokenizers do not say how much their model reads
        positions = longest_text(model.config)
        tokenizer.model_max_length = min(tokenizer.model_max_length, positions or tokenizer.model_max_length)
    elif recipe.max_sentences is not None:
        if recipe.max_sentences > model.config.max_sentences:
            raise ValueError(
                f"max_sentences is {recipe.max_sentences}, but {recipe.model} reads {model.config.max_sentences}; give "
                "no more"
            )
        model.config.max_sentences = recipe.max_sentences
    return model, tokenizer


def windows_classifier(recipe: FinetuneRecipe, labels: Sequence[str]) -> tuple[Any, HMDETokenizer]:
    """An HMDE of the recipe's sentence encoder whose document encoder stays the identity: the mean of the vectors of
    windows is classified. The vector of a window is its start token's, as in the paper."""
    tokenizer = HMDETokenizer.from_sentence_encoder(recipe.model, segmentation="windows", sentence_prompt="")
    start_token: dict[str, Any] = {"sentence_pooling": "cls", "sentence_modules": ()}
    model = HMDEForSequenceClassification.from_sentence_encoder(
        recipe.model, dtype="float32", **start_token, **MEAN_OF_PIECES, **label_names(labels)
    )
    model.base_model.document_encoder.requires_grad_(False)
    return model, tokenizer


def label_names(labels: Sequence[str]) -> dict[str, Any]:
    """The labels and their ids, as a configuration has them."""
    return {"id2label": dict(enumerate(labels)), "label2id": {label: number for number, label in enumerate(labels)}}


def read(recipe: FinetuneRecipe) -> tuple[list[LabelledTexts], list[LabelledTexts], list[LabelledTexts]]:
    """The training documents, the dev documents and those of each test, each a file.

    Raises:
        ValueError: a file is missing or malformed, or has a label that cannot be learnt from the training documents.
    """
    folder = recipe.data if recipe.format == "hmde" else converted_data(recipe)
    train, dev = (read_part(folder, part, recipe.train_languages) for part in ("train", "dev"))
    tests = read_part(folder, "test", recipe.test_languages)
    known = {label for documents in train for label in documents.labels}
    files = ", ".join(str(documents.file) for documents in train)
    if len(known) < 2:
        raise ValueError(f"training documents ({files}) have the labels {sorted(known)}; a classifier needs two")
    check_labels([*dev, *tests], known, known_by=files)
    return train, dev, tests


def converted_data(recipe: FinetuneRecipe) -> Path:
    """The folder of a published data set's files in this project's format."""
    task = ClassificationTask(
        recipe.data,
        recipe.test_languages or recipe.train_languages,
        train_languages=recipe.train_languages,
        format=recipe.format,
    )
    return Path(converted(training_folder(recipe.output) / "data", task).data)


def encode(documents: LabelledTexts, tokenizer: PreTrainedTokenizerBase, labels: Sequence[str]) -> Dataset:
    rows = tokenized(tokenizer, documents.texts, documents.language)
    return Dataset.from_dict({**rows, "labels": [labels.index(label) for label in documents.labels]})


def measure(prediction: EvalPrediction | PredictionOutput) -> dict[str, float]:
    """Accuracy and macro-F1."""
    predicted = np.argmax(prediction.predictions, axis=-1)  # of (documents, labels)
    return accuracy_and_f1(np.asarray(prediction.label_ids).astype(str).tolist(), predicted.astype(str).tolist())


def chosen_step(trainer: ClassifierArguments, state: TrainerState) -> tuple[int, float | None]:
    """The optimizer step that the Trainer's model is of, and the value of the metric on dev that chose it; None if
    nothing did, and the model is that of the last step."""
    if not trainer.load_best_model_at_end or state.best_model_checkpoint is None:
        return state.global_step, None
    step = int(state.best_model_checkpoint.rpartition("-")[2])
    metric = f"eval_{str(trainer.metric_for_best_model).removeprefix('eval_')}"
    return step, next(entry[metric] for entry in state.log_history if entry["step"] == step and metric in entry)


def averages_of(recipe: FinetuneRecipe, scores: Scores) -> Scores:
    """The averages over all tests, and over those in other languages than that of the training documents."""
    tests = [f"{language}.test" for language in recipe.test_languages]
    others = [name for name in tests if name.removesuffix(".test") not in recipe.train_languages]
    groups = {"average": tests, f"average without {', '.join(recipe.train_languages)}": others}
    return averages(scores, groups, MEASURES)


def write_classifier_card(
    recipe: FinetuneRecipe, labels: Sequence[str], state: TrainerState, scores: Scores, hmde: bool, folder: Path
) -> None:
    """Write the README.md of a classifier.

    Args:
        labels: in the order of their ids.
        state: of the Trainer, after the last epoch.
        scores: by `<language>.<part>`, then by measure.
        hmde: whether the model is an HMDE.
        folder: the finished model's.
    """
    metadata = card_data(
        recipe.model,
        language=sorted({*recipe.train_languages, *recipe.test_languages}),
        pipeline_tag="text-classification",
        tags=["hmde", "multilingual"] if hmde else ["multilingual"],
    )
    step, value = chosen_step(recipe.trainer, state)
    write_card(
        folder,
        Path(__file__).parent / "templates" / "classifier.md",
        metadata,
        name=recipe.output,
        hmde=hmde,
        labels=labels,
        step=step,
        num_steps=state.global_step,
        value=value,
        scores=scores,
        recipe=recipe,
        recipe_yaml=as_yaml(recipe_of_run(recipe)),
    )


if __name__ == "__main__":
    run(main)
