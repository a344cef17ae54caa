"""Pretrain T-MDE, cT-MDE, T-MDE_P or T-MDE_F on pairs of sentences.

    accelerate launch replications/t_mde/pretrain.py --config replications/t_mde/t-mde.yaml [--key value ...]

Reads and writes what replications/sentences/pretrain.py does. All options: `--help`, or this file and
replications/translation/losses.py.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import hmde.common.terminal
import hmde.common.threads

import torch
from accelerate import Accelerator
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hmde.common.command_line import options_from, run
from replications.new_encoder import StartOptions
from replications.sentences.batches import SentenceBatch
from replications.sentences.cards import write_sentence_card
from replications.sentences.losses import chosen_losses
from replications.t_mde.decoder import TransformerDecoder
from replications.translation.encoder import TranslatingEncoder
from replications.translation.losses import Distance, Translation
from replications.translation.stage import translating_encoder, translation_stage
from training.loop.loop import Stage, train_stage


@dataclass(kw_only=True)
class TMDETranslation(Translation):
    """Translate through a layer of a transformer as wide as the encoder."""

    bottleneck: bool = True
    """Translate from the vector of the sentence alone. If false, the decoder sees all hidden states (T-MDE_F)."""


@dataclass(kw_only=True)
class TMDELosses:
    """The losses whose weighted sum is minimised. One that is null is left out."""

    translation: TMDETranslation = field(default_factory=TMDETranslation)
    """Sentences are translated from their vectors."""

    distance: Distance | None = None
    """The distance constraint (cT-MDE)."""


@dataclass(kw_only=True)
class TMDERecipe(StartOptions):
    """A pretraining run of T-MDE."""

    losses: TMDELosses = field(default_factory=TMDELosses)
    """What is learned: translation, and the distance constraint beside it."""

    sinusoidal_positions: bool = False
    """Positions of a new encoder are sines and cosines that are not trained, so that it reads texts longer than any in
    training. A run that starts from its folder does not train them either."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sinusoidal_positions and self.sentence_encoder is not None:
            raise ValueError(
                f"{self.sentence_encoder} has positions of its own; leave sinusoidal_positions to a new encoder"
            )


def main(argv: list[str] | None = None) -> None:
    train_stage(options_from(TMDERecipe, argv), tmde_stage, write_sentence_card)


def tmde_stage(recipe: TMDERecipe, accelerator: Accelerator) -> Stage[SentenceBatch]:
    """What the recipe trains, on what, towards what."""
    return translation_stage(recipe, accelerator, chosen_losses(recipe.losses), tmde_encoder)


def tmde_encoder(recipe: TMDERecipe, tokenizer: PreTrainedTokenizerBase) -> TranslatingEncoder:
    """T-MDE's encoder and decoder."""
    translation = recipe.losses.translation
    return translating_encoder(
        recipe,
        tokenizer,
        chosen_losses(recipe.losses),
        lambda encoder: TransformerDecoder(encoder.config, len(translation.pivots), recipe.max_length),
        bottleneck=translation.bottleneck,
        change_encoder=functools.partial(prepare_positions, sinusoidal=recipe.sinusoidal_positions),
    )


def prepare_positions(model: PreTrainedModel, sinusoidal: bool) -> None:
    """Make positions sinusoidal, if the recipe says so of a new encoder or the configuration of a saved one."""
    if sinusoidal or getattr(model.config, "sinusoidal_positions", False):
        make_positions_sinusoidal(model)
        model.config.update({"sinusoidal_positions": True})


@torch.no_grad()
def make_positions_sinusoidal(model: PreTrainedModel) -> None:
    """Write sines and cosines (Vaswani et al., 2017) over the position embeddings, and freeze them. Their standard
    deviation is that with which word embeddings start, to which they are added.

    Raises:
        ValueError: the model has no position embeddings.
    """
    tables = [part for name, part in model.named_modules() if name.endswith("position_embeddings")]
    if len(tables) != 1 or not isinstance(tables[0], nn.Embedding):
        raise ValueError(
            f"sinusoidal_positions: a {model.config.model_type} model has no table of positions; leave them out"
        )
    count, width = tables[0].weight.shape
    frequencies = 10_000 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(count)[:, None] * frequencies
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
    tables[0].weight.copy_(waves * 2**0.5 * model.config.initializer_range)
    tables[0].requires_grad_(False)


if __name__ == "__main__":
    run(main)
