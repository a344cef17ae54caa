"""Fine-tune a sentence encoder to find the answer to a question in a text, on SQuAD (InfoXLM, section 4.2).

    accelerate launch replications/question_answering/finetune.py --config replications/question_answering/squad.yaml

Reads train-v1.1.json and dev-v1.1.json as they are published; writes a model folder for AutoModelForQuestionAnswering,
with the scores on dev in results.json, and beside it a training folder with checkpoints, from which
`--resume true` resumes. The model is that of the last step. `python -m replications.evaluate`
tests it on MLQA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hmde.common.terminal
import hmde.common.threads

import numpy as np
from datasets import Dataset
from huggingface_hub import ModelCard, ModelCardData
from transformers import (
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    Trainer,
    set_seed,
)
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from hmde.common.command_line import options_from, run
from hmde.common.numbers import PositiveFloat
from hmde.common.saved_models import model_type_of
from modeling_hmde.encoders_hmde import longest_text
from replications.question_answering.task import Question, answer, measure, read_questions, windows_of
from training.loop.trainer_runs import TrainerArguments, check_run, trainer_run, write_model
from training.model_card import origin_of

CARD = """\
---
{{ card_data }}
---

# {{ name }}

Finds the answer to a question in a text: {{ model }}, fine-tuned on SQuAD 1.1, which is English. On its dev set it has
an F1 of {{ "%.3f" | format(scores.f1) }} and answers {{ "%.3f" | format(scores.exact_match) }} exactly.
"""


@dataclass
class QuestionArguments(TrainerArguments):
    """Arguments of transformers' Trainer; the defaults are the paper's."""

    num_train_epochs: PositiveFloat = 3
    gradient_accumulation_steps: int = 4
    learning_rate: float = 3e-5
    warmup_steps: float = 0.1
    logging_strategy: IntervalStrategy | str = "epoch"
    save_strategy: SaveStrategy | str = "epoch"


@dataclass
class FinetuneQuestionsRecipe:
    """A fine-tuning run on questions."""

    model: str
    """Folder or Hub name of a sentence encoder. All weights are trained."""

    data: str
    """Folder of SQuAD's train-v1.1.json and dev-v1.1.json."""

    output: str
    """Folder of the finished model. Checkpoints and logs go to `<output>-training`."""

    resume: bool = False
    """Resume from the last whole checkpoint of this output."""

    trainer: QuestionArguments = field(default_factory=QuestionArguments)
    """Learning rate, batches, epochs and the other arguments of transformers' Trainer."""


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(FinetuneQuestionsRecipe, argv)
    with trainer_run(recipe.trainer, recipe.output, recipe.resume) as checkpoint:
        fine_tune(recipe, checkpoint)


def fine_tune(recipe: FinetuneQuestionsRecipe, checkpoint: str | None) -> None:
    """
    Args:
        checkpoint: to resume from, if any.

    Raises:
        ValueError: the model or the data are not what the recipe says, or not those of the run that is resumed.
    """
    if model_type_of("model", recipe.model) == "hmde":
        raise ValueError(
            f"model {recipe.model} is an HMDE, whose vectors are of sentences; an answer is found among tokens, so "
            "name a sentence encoder"
        )
    files = [Path(recipe.data) / f"{part}-v1.1.json" for part in ("train", "dev")]
    train, dev = map(read_questions, files)
    check_run(recipe, files[:1])
    set_seed(recipe.trainer.seed)  # the new layer starts at random
    tokenizer = AutoTokenizer.from_pretrained(recipe.model)
    model = AutoModelForQuestionAnswering.from_pretrained(recipe.model, dtype="float32")
    # Some tokenizers do not say how much their model reads.
    positions = longest_text(model.config)
    tokenizer.model_max_length = min(tokenizer.model_max_length, positions or tokenizer.model_max_length)
    trainer = Trainer(
        model=model,
        args=recipe.trainer,
        train_dataset=encode(train, tokenizer),
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    if trainer.is_world_process_zero():
        values = measure(dev, answer(model.eval(), tokenizer, dev), "en")
        scores = {name: float(np.mean(question_values)) for name, question_values in values.items()}
        card = card_of(recipe, scores)
        write_model(recipe, model, tokenizer, {"scores": scores}, lambda folder: card.save(folder / "README.md"))


def encode(questions: Sequence[Question], tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """Windows of texts, with the tokens at which the answer starts and ends; both are the first token of the row where
    the window does not hold all of it."""
    encoded = windows_of(tokenizer, questions)
    columns: dict[str, list[Any]] = {
        name: encoded[name] for name in ("input_ids", "token_type_ids") if name in encoded
    } | {"start_positions": [], "end_positions": []}
    for index, (offsets, sample) in enumerate(zip(encoded["offset_mapping"], encoded["overflow_to_sample_mapping"])):
        text, begin = questions[sample].answers[0]
        end = begin + len(text)
        text_places = [place for place, sequence in enumerate(encoded.sequence_ids(index)) if sequence == 1]
        tokens = [place for place in text_places if offsets[place][0] < end and offsets[place][1] > begin]
        whole = tokens and offsets[text_places[0]][0] <= begin and end <= offsets[text_places[-1]][1]
        columns["start_positions"].append(tokens[0] if whole else 0)
        columns["end_positions"].append(tokens[-1] if whole else 0)
    return Dataset.from_dict(columns)


def card_of(recipe: FinetuneQuestionsRecipe, scores: dict[str, float]) -> ModelCard:
    base_model, licence = origin_of(recipe.model)
    data = ModelCardData(
        language="en",
        license=licence,
        library_name="transformers",
        pipeline_tag="question-answering",
        base_model=base_model,
    )
    return ModelCard.from_template(data, template_str=CARD, name=recipe.output, model=recipe.model, scores=scores)


if __name__ == "__main__":
    run(main)
