"""Fine-tune a model as a classifier in one language and test it in others (paper, section 3.2 and appendix A.1).

    accelerate launch training/finetune.py --config configuration/finetune/mldoc.yaml [--key value ...]

Reads files in MLDoc's format, `<language>.<part>.tsv`, label TAB text, or a data set as it is published; writes a model
folder ready for the Hub, its scores in results.json, and beside it a training folder with checkpoints, from which
`--resume_from_checkpoint true` goes on. The model is an HMDE, or a baseline: any encoder that transformers knows, which
reads the beginning of a document, or a Longformer of replications/longformer/, whose first token sees all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import yaml
from accelerate import PartialState
from datasets import Dataset, concatenate_datasets
from huggingface_hub import ModelCard, ModelCardData
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
from transformers.trainer_utils import PredictionOutput

from common.command_line import options_from, run
from common.files import folder_written_whole, write_json
from common.fingerprints import fingerprint
from common.saved_models import model_type_of
from evaluation.datasets.conversion import prepare
from evaluation.datasets.files import read_labelled_texts
from evaluation.recipes import ClassificationTask
from evaluation.tables import Scores, averages, environment
from evaluation.tasks.classification import MEASURES, LabelledTexts, accuracy_and_f1, check_labels, tokenized
from training.loop.trainer_runs import trainer_run, training_arguments
from training.model_card import origin_of

CARD = """\
---
{{ card_data }}
---

# {{ name }}

A classifier of documents by the labels {{ labels | join(", ") }}, fine-tuned from {{ recipe.model }}\
{% if hmde %}, a hierarchical multilingual document encoder (HMDE),{% endif %} on documents in \
{{ recipe.train_languages | join(", ") }}. It reads other languages without having been trained on them.

```python
from transformers import pipeline

classify = pipeline("text-classification", model="{{ name }}"{% if hmde %}, trust_remote_code=True{% endif %})
classify("A long document. In any language.")
```
{% if hmde %}
The code in this folder runs on your machine: pin it with `revision="<commit>"`.
{% endif %}
## Results

The model is that of optimizer step {{ state.best_global_step }} of {{ state.global_step }}, where the \
{{ recipe.metric_for_best_model }} on dev was best, {{ "%.4f" | format(state.best_metric) }}.

| | accuracy | macro-F1 |
|---|---|---|
{% for name, found in scores.items() -%}
| {{ name }} | {{ "%.3f" | format(found.accuracy) }} | {{ "%.3f" | format(found.macro_f1) }} |
{% endfor %}
The whole recipe:

```yaml
{{ recipe_yaml }}
```
"""


@dataclass
class FinetuneRecipe:
    """A fine-tuning run; the defaults are the paper's. What TrainingArguments has too means the same there.

    Args:
        model: folder or Hub name of a pretrained HMDE, or of an encoder to compare with it. All weights are trained.
        data: folder of <language>.<part>.tsv: .train.tsv and .dev.tsv of each train language, and .test.tsv of each
            test language; or whatever its format reads.
        output: folder of the finished model, ready for the Hub. Checkpoints and logs go to `<output>-training`.
        train_languages: of training and dev documents.
        test_languages: languages to test in.
        format: of `data`: hmde, or one of classification in evaluation/datasets/conversion.py.
        text_pairs: whether a text is two with a tab between, such as a premise and a hypothesis.
        num_train_epochs: passes over the training documents, at most.
        early_stopping_patience: evaluations on dev without a better one after which training stops.
        eval_steps: optimizer steps between evaluations on dev; an epoch's if not given.
        metric_for_best_model: by which the model is chosen on dev.
        per_device_train_batch_size: documents of one forward pass on one device.
        gradient_accumulation_steps: forward passes to an optimizer step.
        per_device_eval_batch_size: documents of one forward pass on one device in dev and tests.
        learning_rate: reached after the warm-up, then falling linearly to 0 at the end of `num_train_epochs`.
        warmup_steps: optimizer steps over which the learning rate rises from 0.
        weight_decay: AdamW's.
        bf16: mixed precision.
        activation_checkpointing: recompute activations in the backward pass, for memory.
        report_to: a tracker of the Trainer (tensorboard, wandb, mlflow ...), or none.
        resume_from_checkpoint: go on from the last checkpoint of this output.
        seed: of the classifier's start, dropout and order.
    """

    model: str
    data: str
    output: str
    train_languages: list[str] = field(default_factory=lambda: ["en"])
    test_languages: list[str] = field(default_factory=list)
    format: str = "hmde"
    text_pairs: bool = False
    num_train_epochs: int = 50
    early_stopping_patience: int = 7
    eval_steps: int | None = None
    metric_for_best_model: Literal["loss", "accuracy"] = "loss"
    per_device_train_batch_size: int = 4
    gradient_accumulation_steps: int = 8
    per_device_eval_batch_size: int = 16
    learning_rate: float = 2e-5
    warmup_steps: int = 200
    weight_decay: float = 0.0
    bf16: bool = False
    activation_checkpointing: bool = False
    report_to: str = "none"
    resume_from_checkpoint: bool = False
    seed: int = 42

    def __post_init__(self) -> None:
        if not self.train_languages:
            raise ValueError("train_languages is empty; name at least one")
        positive = ("num_train_epochs", "early_stopping_patience", "gradient_accumulation_steps", "learning_rate")
        for name in (*positive, "per_device_train_batch_size", "per_device_eval_batch_size"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(FinetuneRecipe, argv)
    with trainer_run(recipe.output, recipe.resume_from_checkpoint) as checkpoint:
        fine_tune(recipe, checkpoint)


def fine_tune(recipe: FinetuneRecipe, checkpoint: str | None) -> None:
    """
    Args:
        checkpoint: to go on from.

    Raises:
        ValueError: the model or the data are not what the recipe says.
    """
    model_type = model_type_of("model", recipe.model)
    train, dev, tests = read(recipe)
    labels = sorted({label for documents in train for label in documents.labels})
    set_seed(recipe.seed)  # the classifier starts at random
    tokenizer = AutoTokenizer.from_pretrained(recipe.model)
    model = AutoModelForSequenceClassification.from_pretrained(
        recipe.model,
        dtype="float32",
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
    )
    # The classifiers of transformers take what Trainer says of an accumulated batch, and take no notice of it.
    model.accepts_loss_kwargs = False
    if model_type != "hmde":  # some tokenizers do not say how much their model reads
        tokenizer.model_max_length = min(tokenizer.model_max_length, model.config.max_position_embeddings)
    strategy = "epoch" if recipe.eval_steps is None else "steps"
    arguments = training_arguments(
        recipe,
        eval_strategy=strategy,
        logging_strategy="epoch",
        save_strategy=strategy,
        save_steps=recipe.eval_steps or 500,  # of strategy steps
        save_total_limit=1,  # and the best one
        load_best_model_at_end=True,
        metric_for_best_model=f"eval_{recipe.metric_for_best_model}",
        restore_callback_states_from_checkpoint=True,  # how much patience is left
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=concatenate_datasets([encode(documents, tokenizer, labels) for documents in train]),
        eval_dataset=concatenate_datasets([encode(documents, tokenizer, labels) for documents in dev]),
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=measure,
        callbacks=[EarlyStoppingCallback(recipe.early_stopping_patience)],
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    scores = {  # of the best model, which the Trainer has put back
        documents.file.stem: measure(trainer.predict(encode(documents, tokenizer, labels)))
        for documents in (*dev, *tests)
    }
    if trainer.is_world_process_zero():
        with folder_written_whole(recipe.output) as folder:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            write_results(folder, recipe, labels, trainer.state, scores)


def read(recipe: FinetuneRecipe) -> tuple[list[LabelledTexts], list[LabelledTexts], list[LabelledTexts]]:
    """The training documents, the dev documents and those of each test, each a file.

    Raises:
        ValueError: a file is missing or malformed, or has a label that cannot be learnt from the training documents.
    """
    folder = Path(recipe.data) if recipe.format == "hmde" else converted(recipe)
    train, dev, tests = (
        [
            LabelledTexts(file, language, *read_labelled_texts(file, recipe.text_pairs), recipe.text_pairs)
            for language in languages
            for file in [folder / f"{language}.{part}.tsv"]
        ]
        for part, languages in (
            ("train", recipe.train_languages), ("dev", recipe.train_languages), ("test", recipe.test_languages)
        )
    )  # fmt: skip
    known = {label for documents in train for label in documents.labels}
    files = ", ".join(str(documents.file) for documents in train)
    if len(known) < 2:
        raise ValueError(f"{files} has no label but {known.pop()!r}; a classifier needs two or more")
    check_labels([*dev, *tests], known, known_by=files)
    return train, dev, tests


def converted(recipe: FinetuneRecipe) -> Path:
    """The folder of a published data set's files in this project's format, written by one process."""
    task = ClassificationTask(
        recipe.data,
        recipe.test_languages or recipe.train_languages,
        train_languages=recipe.train_languages,
        format=recipe.format,
    )
    folder = Path(f"{recipe.output}-training") / f"data-{fingerprint(task)}"
    with PartialState().local_main_process_first():
        if not folder.exists():
            with folder_written_whole(folder) as partial:
                prepare(task, partial)
    return folder


def encode(documents: LabelledTexts, tokenizer: PreTrainedTokenizerBase, labels: Sequence[str]) -> Dataset:
    rows = tokenized(tokenizer, documents.texts, documents.language, documents.pairs)
    return Dataset.from_dict({**rows, "labels": [labels.index(label) for label in documents.labels]})


def measure(prediction: EvalPrediction | PredictionOutput) -> dict[str, float]:
    """Accuracy and macro-F1."""
    predicted = np.argmax(prediction.predictions, axis=-1)  # of (documents, labels)
    return accuracy_and_f1(np.asarray(prediction.label_ids).astype(str).tolist(), predicted.astype(str).tolist())


def write_results(
    folder: Path, recipe: FinetuneRecipe, labels: Sequence[str], state: TrainerState, scores: Scores
) -> None:
    """Write results.json and the model card, README.md.

    Args:
        folder: the finished model's.
        recipe: the run's.
        labels: in the order of their ids.
        state: of the Trainer, after the last epoch.
        scores: by `<language>.<part>`, then by measure.
    """
    tests = [f"{language}.test" for language in recipe.test_languages]
    others = [name for name in tests if name.removesuffix(".test") not in recipe.train_languages]
    groups = {"average": tests, f"average without {', '.join(recipe.train_languages)}": others}
    scores |= averages(scores, groups, MEASURES)
    results = {
        "recipe": asdict(recipe),
        "environment": environment(),
        "scores": scores,
        "epochs": [entry for entry in state.log_history if "eval_loss" in entry],
    }
    write_json(folder / "results.json", results)

    hmde = model_type_of("model", recipe.model) == "hmde"
    base_model, licence = origin_of(recipe.model)
    data = ModelCardData(
        language=sorted({*recipe.train_languages, *recipe.test_languages}),
        license=licence,
        library_name="transformers",
        pipeline_tag="text-classification",
        tags=["hmde", "multilingual"] if hmde else ["multilingual"],
        base_model=base_model,
    )
    card = ModelCard.from_template(
        data,
        template_str=CARD,
        name=recipe.output,
        hmde=hmde,
        labels=labels,
        state=state,
        scores=scores,
        recipe=recipe,
        recipe_yaml=yaml.safe_dump(asdict(recipe), sort_keys=False, allow_unicode=True).strip(),
    )
    card.save(folder / "README.md")


if __name__ == "__main__":
    run(main)
