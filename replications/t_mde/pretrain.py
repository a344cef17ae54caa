"""Pretrain T-MDE, cT-MDE or T-MDE_F on pairs of sentences.

    accelerate launch replications/t_mde/pretrain.py --config replications/t_mde/t-mde.yaml [--key value ...]

Reads and writes what replications/sentences/pretrain.py does. All options: `--help`, or this file and
losses.py.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import hmde.common.threads

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hmde.common.command_line import options_from, run
from replications.sentences.batches import SentenceBatch
from replications.sentences.cards import write_sentence_card
from replications.sentences.encoder import prepare_encoder
from replications.sentences.losses import chosen_losses, weighted_losses
from replications.sentences.stage import sentence_stage
from replications.t_mde.data import DrawnPairs, TranslationCollator
from replications.t_mde.decoder import TransformerDecoder
from replications.t_mde.encoder import TranslatingEncoder, load_decoder
from replications.t_mde.losses import LOSSES, Distance, Translation
from replications.t_mde.new_encoder import StartOptions, start_encoder, start_tokenizer
from training.loop.loop import Stage, train_stage


@dataclass(kw_only=True)
class TMDELosses:
    """The losses whose weighted sum is minimised. One that is null is left out."""

    translation: Translation = field(default_factory=Translation)
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
    """What the recipe trains, on what, towards what.

    Raises:
        ValueError: the pairs, the encoder or the decoder are not what the recipe says.
    """
    pivots = recipe.losses.translation.pivots
    set_seed(recipe.seed)
    pairs = DrawnPairs(recipe.corpus, "train", seed=recipe.seed)
    check_pivots(recipe.corpus, pairs.languages, pivots)
    tokenizer = start_tokenizer(recipe, pairs, accelerator)
    encoder = tmde_encoder(recipe, tokenizer)
    return sentence_stage(
        recipe,
        accelerator,
        pairs=pairs,
        encoder=encoder,
        collate=TranslationCollator(tokenizer, recipe.max_length, pivots, both_sides=encoder.with_vectors),
        losses=functools.partial(weighted_losses, chosen_losses(recipe.losses), LOSSES),
    )


def check_pivots(corpus: str, tables: list[str], pivots: list[str]) -> None:
    """
    Args:
        tables: pairs of languages of the corpus, `<one>-<other>`.

    Raises:
        ValueError: there is a pair without a pivot.
    """
    without_pivot = [languages for languages in tables if not {*pivots} & {*languages.split("-")}]
    if without_pivot:
        raise ValueError(
            f"{corpus} has pairs of {without_pivot[0]}, of which neither is among pivots, which has "
            f"{', '.join(pivots)}; name one of them there, or take that table out of the corpus"
        )


def tmde_encoder(recipe: TMDERecipe, tokenizer: PreTrainedTokenizerBase) -> TranslatingEncoder:
    """The encoder to train, beside its decoder.

    Raises:
        ValueError: the encoder or the decoder are not what the recipe says.
    """
    translation = recipe.losses.translation
    model = start_encoder(recipe, tokenizer)
    prepare_positions(model, recipe.sinusoidal_positions)
    prepare_encoder(model, recipe)
    decoder = TransformerDecoder(model.config, len(translation.pivots), recipe.max_length)
    load_decoder(decoder, recipe.sentence_encoder)
    compares = recipe.losses.distance is not None
    return TranslatingEncoder(model, decoder, translation, with_vectors=compares).train()


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
