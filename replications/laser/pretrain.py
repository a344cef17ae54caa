"""Pretrain LASER or cLASER on pairs of sentences.

    accelerate launch replications/laser/pretrain.py --config replications/laser/laser.yaml [--key value ...]

Reads and writes what replications/sentences/pretrain.py does. All options: `--help`, or this file and
replications/translation/losses.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import hmde.common.terminal
import hmde.common.threads

from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase

from hmde.common.command_line import options_from, run
from hmde.common.numbers import PositiveInt
from replications.laser.decoder import LSTMDecoder
from replications.new_encoder import StartOptions
from replications.sentences.batches import SentenceBatch
from replications.sentences.cards import write_sentence_card
from replications.sentences.losses import chosen_losses
from replications.translation.encoder import TranslatingEncoder
from replications.translation.losses import Distance, Translation
from replications.translation.stage import translating_encoder, translation_stage
from training.loop.loop import Stage, train_stage


@dataclass(kw_only=True)
class LaserTranslation(Translation):
    """Translate through a layer of an LSTM."""

    decoder_size: PositiveInt = 2048
    """Width of the LSTM that translates."""

    rereads_state: bool = True
    """Whether it reads its state before once more beside each token, as in the authors' code."""


@dataclass(kw_only=True)
class LaserLosses:
    """The losses whose weighted sum is minimised. One that is null is left out."""

    translation: LaserTranslation = field(default_factory=LaserTranslation)
    """Sentences are translated from their vectors."""

    distance: Distance | None = None
    """The distance constraint (cLASER)."""


@dataclass(kw_only=True)
class LaserRecipe(StartOptions):
    """A pretraining run of LASER."""

    losses: LaserLosses = field(default_factory=LaserLosses)
    """What is learned: translation, and the distance constraint beside it."""


def main(argv: list[str] | None = None) -> None:
    train_stage(options_from(LaserRecipe, argv), laser_stage, write_sentence_card)


def laser_stage(recipe: LaserRecipe, accelerator: Accelerator) -> Stage[SentenceBatch]:
    """What the recipe trains, on what, towards what."""
    return translation_stage(recipe, accelerator, chosen_losses(recipe.losses), laser_encoder)


def laser_encoder(recipe: LaserRecipe, tokenizer: PreTrainedTokenizerBase) -> TranslatingEncoder:
    """LASER's encoder and decoder."""
    translation = recipe.losses.translation
    return translating_encoder(
        recipe,
        tokenizer,
        chosen_losses(recipe.losses),
        lambda encoder: LSTMDecoder(
            encoder, len(translation.pivots), translation.decoder_size, translation.rereads_state
        ),
    )


if __name__ == "__main__":
    run(main)
