"""Train a sentence encoder on pairs of sentences: it learns a teacher's vectors, or finds translations, or both.

    accelerate launch replications/sentences/pretrain.py --config replications/sentences/student.yaml [--key ...]

Reads a folder of parallel text (see README.md here); writes a model folder that `AutoModel`, `AutoTokenizer` and
`HMDEForDocumentEmbedding.from_sentence_encoder` open, and beside it a training folder with checkpoints and logs, from
which `--resume true` resumes. On SIGTERM it finishes the step, saves a checkpoint and exits with code 143. All options:
`python replications/sentences/pretrain.py --help`, or this file, losses.py and stage.py.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, Literal

import hmde.common.threads

from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import AutoTokenizer

from hmde.common.command_line import options_from, run
from replications.sentences.batches import SentenceBatch, SentenceCollator
from replications.sentences.cards import write_sentence_card
from replications.sentences.encoder import SentenceEncoder, SentencePooling, load_encoder, prepare_encoder, take_layers
from replications.sentences.losses import SentenceLosses, Teacher, chosen_losses, student_losses, weighted_losses
from replications.sentences.pairs import Pairs
from replications.sentences.stage import PairsOptions, sentence_stage
from training.loop.loop import Stage, train_stage


@dataclass(kw_only=True)
class PretrainSentencesRecipe(PairsOptions):
    """A pretraining run of a sentence encoder on pairs of sentences."""

    sentence_encoder: str
    """Hub name or folder of the encoder to start from."""

    architecture: dict[str, Any] = field(default_factory=dict)
    """Fields of the encoder's configuration that differ from the start's."""

    layers: list[int] | None = None
    """Which layers of the encoder to start from are kept, counted from 0; all if not given."""

    freeze: Literal["nothing", "word_embeddings"] = "nothing"
    """What is not trained. Frozen word_embeddings spare their large gradient."""

    prompt: str = ""
    """Text put before every sentence that is to become a vector (E5: `query: `)."""

    pooling: SentencePooling = "mean"
    """The vector of a sentence: the last hidden state of its first token (cls), or the mean over its tokens."""

    losses: SentenceLosses = field(default_factory=SentenceLosses)
    """What is learned: align, distillation or both, each with its weight."""


def main(argv: list[str] | None = None) -> None:
    train_stage(options_from(PretrainSentencesRecipe, argv), student_stage, write_sentence_card)


def student_stage(recipe: PretrainSentencesRecipe, accelerator: Accelerator) -> Stage[SentenceBatch]:
    """What the recipe trains, on what, towards what.

    Raises:
        ValueError: the pairs, the encoder or the teacher are not what the recipe says.
    """
    chosen = chosen_losses(recipe.losses)
    set_seed(recipe.seed)
    pairs = Pairs(recipe.corpus, "train")
    model = load_encoder(recipe.sentence_encoder, recipe.architecture, recipe.max_length)
    if recipe.layers is not None:
        take_layers(model, recipe.layers)
    if recipe.freeze == "word_embeddings":
        model.get_input_embeddings().requires_grad_(False)
    prepare_encoder(model, recipe)
    encoder = SentenceEncoder(model, recipe.pooling)
    teacher = None
    if recipe.losses.distillation is not None:
        size, max_tokens = model.config.hidden_size, recipe.max_tokens_per_chunk
        teacher = Teacher(recipe.losses.distillation, size, accelerator, max_tokens)
    tokenizer = AutoTokenizer.from_pretrained(recipe.sentence_encoder)
    return sentence_stage(
        recipe,
        accelerator,
        pairs=pairs,
        encoder=encoder,
        collate=SentenceCollator(tokenizer, recipe.max_length, recipe.prompt, teacher.tokenizer if teacher else None),
        losses=functools.partial(weighted_losses, chosen, student_losses(teacher)),
        teacher=teacher,
    )


if __name__ == "__main__":
    run(main)
