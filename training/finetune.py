"""Fine-tune an HMDE as a topic classifier in one language, to be used in all (paper, section 3.2 and appendix A.1).

    accelerate launch training/finetune.py --config configuration/finetune/mldoc.yaml [--key value ...]

Reads files in MLDoc's format, `label TAB text`, and writes a classifier ready for the Hub; what it scores in other
languages is measured by `python -m evaluation.classification --finetuned.NAME FOLDER`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from datasets import Dataset
from huggingface_hub import ModelCard, ModelCardData
from jsonargparse import auto_cli
from sklearn.metrics import accuracy_score
from transformers import (
    DataCollatorWithPadding,
    EarlyStoppingCallback,
    EvalPrediction,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

from evaluation.readers import read_labelled_texts
from modeling_hmde import HMDEForSequenceClassification, HMDETokenizer
from training.folders import written_whole

CARD = """\
---
{{ card_data }}
---

# {{ name }}

A topic classifier on a hierarchical multilingual document encoder (HMDE), fine-tuned on texts in the language
`{{ language }}` with the labels {{ labels }}. It reads other languages without having been trained on them.

On dev texts of that language: loss {{ "%.4f" | format(metrics.eval_loss) }}, accuracy\
 {{ "%.4f" | format(metrics.eval_accuracy) }}.

```python
from transformers import pipeline

classify = pipeline("text-classification", model="{{ name }}", trust_remote_code=True)
classify("A document. In any language.")
```

The whole recipe:

```yaml
{{ recipe }}
```
"""


@dataclass
class FinetuneRecipe:
    """A fine-tuning run; the defaults are the paper's.

    Args:
        model: folder or Hub name of an HMDE.
        data: folder with `<language>.train.tsv` and `<language>.dev.tsv`.
        output: folder of the finished classifier. Checkpoints and logs go to `<output>-training`.
        language: of training and dev texts.
        learning_rate: reached after the warm-up, then falling linearly to 0.
        warmup_steps: optimizer steps over which the learning rate rises from 0.
        batch_size: documents of one forward pass on one device.
        gradient_accumulation_steps: forward passes to an optimizer step.
        epochs: passes over the training texts, at most.
        patience: epochs without a lower dev loss after which training stops.
        bf16: mixed precision.
        gradient_checkpointing: recompute activations in the backward pass, for memory.
        log_with: a tracker of the Trainer (tensorboard, wandb, mlflow ...), or none.
        resume: go on from the last checkpoint of this output.
        seed: of the classifier's start, dropout and order.
    """

    model: str
    data: str
    output: str
    language: str = "en"
    learning_rate: float = 2e-5
    warmup_steps: int = 200
    batch_size: int = 4
    gradient_accumulation_steps: int = 8
    epochs: int = 50
    patience: int = 7
    bf16: bool = False
    gradient_checkpointing: bool = False
    log_with: str = "none"
    resume: bool = False
    seed: int = 42


def main(argv: list[str] | None = None) -> None:
    recipe = auto_cli(FinetuneRecipe, args=argv, as_positional=False)
    if Path(recipe.output).exists():
        raise ValueError(f"{recipe.output} exists; remove it, or name another output")
    last = get_last_checkpoint(training_folder(recipe)) if Path(training_folder(recipe)).exists() else None
    if recipe.resume and last is None:
        raise ValueError(f"{training_folder(recipe)} has no checkpoint to resume from; start without --resume")
    files = {part: Path(recipe.data) / f"{recipe.language}.{part}.tsv" for part in ("train", "dev")}
    texts = {part: read_labelled_texts(path) for part, path in files.items()}
    labels = sorted(set(texts["train"][0]))
    for label in texts["dev"][0]:
        if label not in labels:
            raise ValueError(f"{files['dev']} has the label {label!r}, unknown to {files['train']}; use the same ones")

    set_seed(recipe.seed)  # the classifier starts at random
    tokenizer = HMDETokenizer.from_pretrained(recipe.model)
    model = HMDEForSequenceClassification.from_pretrained(
        recipe.model, id2label=dict(enumerate(labels)), label2id={label: number for number, label in enumerate(labels)}
    )
    trainer = Trainer(
        model=model,
        args=training_arguments(recipe),
        train_dataset=tokenized(*texts["train"], tokenizer, labels, recipe.language),
        eval_dataset=tokenized(*texts["dev"], tokenizer, labels, recipe.language),
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=accuracy,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=recipe.patience)],
    )
    trainer.train(resume_from_checkpoint=last if recipe.resume else None)
    metrics = trainer.evaluate()  # of the best epoch, whose weights the Trainer has put back
    if trainer.is_world_process_zero():
        with written_whole(recipe.output) as folder:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            write_card(folder, recipe, labels, metrics)


def training_folder(recipe: FinetuneRecipe) -> str:
    return f"{recipe.output}-training"


def training_arguments(recipe: FinetuneRecipe) -> TrainingArguments:
    return TrainingArguments(
        output_dir=training_folder(recipe),
        learning_rate=recipe.learning_rate,
        warmup_steps=recipe.warmup_steps,
        per_device_train_batch_size=recipe.batch_size,
        per_device_eval_batch_size=recipe.batch_size,
        gradient_accumulation_steps=recipe.gradient_accumulation_steps,
        num_train_epochs=recipe.epochs,
        weight_decay=0.0,
        bf16=recipe.bf16,
        gradient_checkpointing=recipe.gradient_checkpointing,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        logging_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        report_to=recipe.log_with,
        seed=recipe.seed,
    )


def tokenized(
    labels: list[str], texts: list[str], tokenizer: HMDETokenizer, names: list[str], language: str
) -> Dataset:
    rows = tokenizer(texts, language=language)
    return Dataset.from_dict({**rows, "labels": [names.index(label) for label in labels]})


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    predicted = np.argmax(prediction.predictions, axis=-1)  # of (documents, labels)
    return {"accuracy": float(accuracy_score(prediction.label_ids, predicted))}


def write_card(folder: Path, recipe: FinetuneRecipe, labels: list[str], metrics: dict[str, float]) -> None:
    base_model: dict[str, Any] = {} if Path(recipe.model).is_dir() else {"base_model": recipe.model}
    data = ModelCardData(
        language=[recipe.language],
        license="apache-2.0",
        library_name="transformers",
        pipeline_tag="text-classification",
        tags=["hmde", "multilingual"],
        **base_model,
    )
    card = ModelCard.from_template(
        data,
        template_str=CARD,
        name=recipe.output,
        language=recipe.language,
        labels=", ".join(labels),
        metrics=metrics,
        recipe=yaml.safe_dump(asdict(recipe), sort_keys=False).strip(),
    )
    card.save(folder / "README.md")


if __name__ == "__main__":
    main()
