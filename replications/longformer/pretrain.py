"""mLongformer, the paper's flat baseline: a BERT- or XLM-R-type encoder made to read 4,096 tokens (section 3.3).

    accelerate launch replications/longformer/pretrain.py --config replications/longformer/paper.yaml [--key value ...]

Self-attention becomes attention to a window around each token (Beltagy et al. 2020), position embeddings are repeated
up to the new length, and masked language modelling on single articles adapts the rest. The result is an ordinary
checkpoint of transformers' Longformer. The released code of the paper never gives a token global attention; with
`global_attention` the first token, whose vector is the document's, sees the whole document.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hmde.common.threads

import datasets
import torch
import transformers
from torch import Tensor
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    LongformerConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    set_seed,
)
from transformers.models.longformer.modeling_longformer import LongformerMaskedLMOutput

from hmde.common.command_line import options_from, run
from hmde.common.numbers import NonNegativeFloat, PositiveInt, Share
from hmde.common.saved_models import model_type_of, opening
from replications.longformer.system import first_token
from replications.trainer_runs import TrainerArguments, check_run, trainer_run, write_model
from training.data.articles import load_articles, rows_of_split

# Where BERT and XLM-R keep the head of masked language modelling, by its name in Longformer.
HEADS = {
    "bert": {
        "dense": "cls.predictions.transform.dense",
        "layer_norm": "cls.predictions.transform.LayerNorm",
        "bias": "cls.predictions.bias",
    },
    "xlm-roberta": {"dense": "lm_head.dense", "layer_norm": "lm_head.layer_norm", "bias": "lm_head.bias"},
}


@dataclass
class LongformerArguments(TrainerArguments):
    """Arguments of transformers' Trainer; the defaults are the paper's (appendix A.1)."""

    num_train_epochs: NonNegativeFloat = 1
    per_device_train_batch_size: int = 2
    gradient_accumulation_steps: int = 32
    learning_rate: float = 1e-5
    warmup_steps: float = 500
    weight_decay: float = 0.01
    logging_steps: float = 10
    save_total_limit: int | None = 2


@dataclass
class LongformerRecipe:
    """A conversion and its training; the defaults are the paper's (appendix A.1)."""

    encoder: str
    """Folder or Hub name of a BERT- or XLM-R-type encoder."""

    corpus: str
    """Folder that python -m training.corpus wrote; its training articles are read one by one."""

    output: str
    """Folder of the finished model. Checkpoints go to `<output>-training`."""

    max_length: PositiveInt = 4096
    """Tokens of a document, start and end token included."""

    attention_window: PositiveInt = 512
    """Tokens that a token sees, half of them on either side; even."""

    global_attention: bool = True
    """Whether the first token sees all tokens and is seen by all."""

    mlm_probability: Share = 0.15
    """Share of the tokens that are masked."""

    resume: bool = False
    """Resume from the last whole checkpoint of this output."""

    trainer: LongformerArguments = field(default_factory=LongformerArguments)
    """Learning rate, batches, epochs and the other arguments of transformers' Trainer."""

    def __post_init__(self) -> None:
        if self.attention_window % 2:
            raise ValueError(f"attention_window is {self.attention_window}; it must be even")


@dataclass
class GlobalAttentionCollator(DataCollatorForLanguageModeling):
    """Masks tokens for guessing and, if asked to, gives the first token global attention.

    Args:
        global_attention: see LongformerRecipe.
    """

    global_attention: bool = True

    def torch_call(self, examples: list[Any]) -> dict[str, Any]:
        batch = super().torch_call(examples)
        if self.global_attention:
            batch["global_attention_mask"] = first_token(batch["input_ids"])
        return batch


class LongformerForMaskedLM(transformers.LongformerForMaskedLM):
    """Computes logits where there is something to guess, and nowhere else: with a multilingual vocabulary, the logits
    of all tokens of one long document take gigabytes. Is saved under the name that it shares with its base class.
    """

    def forward(
        self,
        input_ids: Tensor,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **inputs: Any,
    ) -> LongformerMaskedLMOutput:
        """Loss, and logits of the labelled tokens, (labelled tokens, vocabulary); without labels, those of all tokens.

        Args:
            input_ids: (documents, tokens).
            labels: (documents, tokens), -100 where there is nothing to guess.
            num_items_in_batch: labelled tokens that the loss is divided by; those of these documents if not given.
            inputs: what else the base class takes.
        """
        if labels is None:
            return super().forward(input_ids, **inputs)
        labelled = labels != -100
        logits = self.lm_head(self.longformer(input_ids, **inputs).last_hidden_state[labelled])
        loss = self.loss_function(logits, labels[labelled], self.config.vocab_size, num_items_in_batch)
        return LongformerMaskedLMOutput(loss=loss, logits=logits)


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(LongformerRecipe, argv)
    with trainer_run(recipe.trainer, recipe.output, recipe.resume) as checkpoint:
        train(recipe, checkpoint)


def train(recipe: LongformerRecipe, checkpoint: str | None) -> None:
    """
    Args:
        checkpoint: to resume from, if any.

    Raises:
        ValueError: the encoder or the corpus is not what the recipe says, or not that of the run that is resumed.
    """
    tables = load_articles(Path(recipe.corpus)).values()
    check_run(recipe, sorted((Path(recipe.corpus) / "articles").glob("*.parquet")))
    set_seed(recipe.trainer.seed)
    articles = datasets.concatenate_datasets([rows_of_split(table, "train").select_columns("text") for table in tables])
    model, tokenizer = convert(recipe.encoder, recipe.max_length, recipe.attention_window)
    trainer = Trainer(
        model=model,
        args=recipe.trainer,
        train_dataset=articles.map(
            lambda texts: tokenizer(texts, truncation=True, return_special_tokens_mask=True),
            input_columns="text",
            batched=True,
            remove_columns=articles.column_names,
        ),
        data_collator=GlobalAttentionCollator(
            tokenizer, mlm_probability=recipe.mlm_probability, global_attention=recipe.global_attention
        ),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    if not recipe.global_attention:
        copy_local_to_global(model)
    if trainer.is_world_process_zero():
        write_model(recipe, model, tokenizer, {"history": trainer.state.log_history})


def convert(
    encoder: str, max_length: int = 4096, attention_window: int = 512
) -> tuple[LongformerForMaskedLM, PreTrainedTokenizerBase]:
    """A Longformer with the weights of a BERT- or XLM-R-type encoder, and its tokenizer.

    On documents of at most half a window all tokens see each other, so the outputs are the encoder's. The head of
    masked language modelling is the checkpoint's where it has one, else it starts at random.

    Args:
        encoder: folder or Hub name.
        max_length: tokens that get a position, start and end token included.
        attention_window: tokens that a token sees, half of them on either side.

    Raises:
        ValueError: the encoder does not open, or is of another type.
    """
    model_type = model_type_of("encoder", encoder)
    if model_type not in HEADS:
        raise ValueError(
            f"encoder: {encoder} is a {model_type} model, but only {' and '.join(HEADS)} models can be converted; name "
            "one of these"
        )
    with opening(encoder, "encoder"):
        source = AutoModelForMaskedLM.from_pretrained(encoder, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(encoder, model_max_length=max_length)
    old = source.config
    # Longformer counts positions from pad_token_id + 1, as XLM-R does; BERT counts from 0.
    first_position = old.pad_token_id + 1
    config = LongformerConfig(
        **{
            name: getattr(old, name)
            for name in (
                "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob", "type_vocab_size",
                "initializer_range", "layer_norm_eps", "pad_token_id",
            )
        },
        max_position_embeddings=max_length + first_position,
        attention_window=attention_window,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        sep_token_id=tokenizer.sep_token_id,
    )  # fmt: skip
    model = LongformerForMaskedLM(config)
    weights = source.base_model.state_dict()
    offset = first_position if old.model_type == "xlm-roberta" else 0
    weights = {name: value for name, value in weights.items() if not name.startswith("pooler.")}
    positions = weights["embeddings.position_embeddings.weight"][offset:]
    repeats = -(-max_length // len(positions))
    weights["embeddings.position_embeddings.weight"] = torch.cat(
        [torch.zeros(first_position, config.hidden_size), positions.repeat(repeats, 1)[:max_length]]
    )
    kept = model.longformer.state_dict()
    model.longformer.load_state_dict(kept | {name: value for name, value in weights.items() if name in kept})
    copy_local_to_global(model)
    copy_head(source, model)
    return model.eval(), tokenizer


def copy_local_to_global(model: LongformerForMaskedLM) -> None:
    """Gives global attention the weights of local attention, in every layer."""
    for layer in model.longformer.encoder.layer:
        attention = layer.attention.self
        for name in ("query", "key", "value"):
            getattr(attention, f"{name}_global").load_state_dict(getattr(attention, name).state_dict())


def copy_head(source: PreTrainedModel, model: LongformerForMaskedLM) -> None:
    """Gives a Longformer the head of masked language modelling of the encoder that it was made from."""
    names = HEADS[source.config.model_type]
    model.lm_head.dense.load_state_dict(source.get_submodule(names["dense"]).state_dict())
    model.lm_head.layer_norm.load_state_dict(source.get_submodule(names["layer_norm"]).state_dict())
    with torch.no_grad():
        model.lm_head.bias.copy_(source.get_parameter(names["bias"]))


if __name__ == "__main__":
    run(main)
