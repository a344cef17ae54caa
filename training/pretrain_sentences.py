"""Train a sentence encoder on pairs of sentences: it learns a teacher's vectors, or finds translations, or both.

    accelerate launch training/pretrain_sentences.py --config configuration/pretrain_sentences/student.yaml [--key ...]

Reads a folder of parallel text (docs/sentence-encoders.md); writes a model folder that `AutoModel`, `AutoTokenizer` and
`HMDEForDocumentEmbedding.from_sentence_encoder` open, and beside it a training folder with checkpoints and logs, from
which `--resume true` resumes. On SIGTERM it finishes the step, saves a checkpoint and exits with code 143. All options:
`python training/pretrain_sentences.py --help`, or training/sentences/.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import common.threads

from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import AutoTokenizer

from common.command_line import options_from, run
from training.loop.loop import Stage, train
from training.sentences.batches import SentenceBatch, SentenceCollator
from training.sentences.card import write_sentence_card
from training.sentences.encoder import SentenceEncoder, cut_encoder, load_encoder, prepare_encoder
from training.sentences.losses import LOSSES, SentenceLosses, Teacher, chosen_losses, weighted_losses
from training.sentences.pairs import Pairs
from training.sentences.recipe import SentenceEncoderOptions
from training.sentences.stage import sentence_stage


@dataclass(kw_only=True)
class PretrainSentencesRecipe(SentenceEncoderOptions):
    """A pretraining run of a sentence encoder on pairs of sentences."""

    sentence_encoder: str
    """Hub name or folder of the encoder to start from."""

    losses: SentenceLosses = field(default_factory=SentenceLosses)
    """What is learned: align, distillation or both, each with its weight."""


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(PretrainSentencesRecipe, argv)
    train(
        recipe,
        make_stage=functools.partial(student_stage, recipe),
        write_card=functools.partial(write_sentence_card, recipe),
    )


def student_stage(recipe: PretrainSentencesRecipe, accelerator: Accelerator) -> Stage[SentenceBatch]:
    """What the recipe trains, on what, towards what.

    Raises:
        ValueError: the pairs, the encoder or the teacher are not what the recipe says.
    """
    losses = functools.partial(weighted_losses, chosen_losses(recipe.losses), LOSSES)
    set_seed(recipe.seed)
    pairs = Pairs(recipe.corpus, "train", seed=recipe.seed)
    model = load_encoder(recipe.sentence_encoder, recipe.architecture, recipe.max_length)
    cut_encoder(model, recipe)
    prepare_encoder(model, recipe)
    encoder = SentenceEncoder(model, recipe.pooling, recipe.sentence_layer).train()
    teacher = None
    if recipe.losses.distillation is not None:
        teacher = Teacher(
            recipe.losses.distillation, model.config.hidden_size, accelerator, recipe.max_tokens_per_chunk
        )
    collate = SentenceCollator(
        AutoTokenizer.from_pretrained(recipe.sentence_encoder),
        recipe.max_length,
        recipe.prompt,
        teacher.tokenizer if teacher else None,
    )
    return sentence_stage(
        recipe, accelerator, pairs=pairs, encoder=encoder, collate=collate, losses=losses, teacher=teacher
    )


if __name__ == "__main__":
    run(main)
