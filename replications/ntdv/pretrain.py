"""Pretrain NV or cNV, an NTDV, on two translation models and the pairs of sentences of their languages.

    accelerate launch replications/ntdv/pretrain.py --config replications/ntdv/ntdv.yaml [--key value ...]

Reads and writes what replications/sentences/pretrain.py does. All options: `--help`, or this file and losses.py.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import hmde.common.terminal
import hmde.common.threads

from accelerate import Accelerator
from accelerate.utils import set_seed

from hmde.common.command_line import options_from, run
from hmde.common.numbers import PositiveInt
from replications.drawn_pairs import DrawnPairs
from replications.ntdv.encoder import (
    NTDVEncoder,
    config_of_translators,
    language_evidence,
    load_translators,
    tokenizer_of_translators,
)
from replications.ntdv.losses import LOSSES, NTDVLosses
from replications.ntdv.modeling_ntdv import NTDVConfig, NTDVModel
from replications.ntdv.train_translator import two_languages
from replications.sentences.batches import SentenceBatch
from replications.sentences.cards import write_sentence_card
from replications.sentences.losses import chosen_losses, weighted_losses
from replications.sentences.pairs import Pair
from replications.sentences.stage import PairsOptions, sentence_stage
from replications.translation.data import TranslationCollator
from training.loop.loop import Stage, train_stage


@dataclass(kw_only=True)
class NTDVRecipe(PairsOptions):
    """A pretraining run of NV or cNV."""

    translators: tuple[str, str]
    """Folders of the two translation models that an NTDV stands on: from one language into the other, and back. They
    stay as they are."""

    num_attention_heads: PositiveInt = 4
    """Heads of the shared self-attention (r)."""

    vector: Literal["sum", "concat"] = "concat"
    """What is made of the heads, their sum (equation 3.3) or their concatenation (equation 3.4)."""

    losses: NTDVLosses = field(default_factory=NTDVLosses)
    """What is learned: translation (NV), and squared_distance beside it (cNV)."""


class NTDVCollator(TranslationCollator):
    """Both sentences of each pair are translated into each other."""

    def target_sides(self, pairs: Sequence[Pair]) -> list[tuple[int, int]]:
        return [(index, side) for side in (1, 0) for index in range(len(pairs))]


def main(argv: list[str] | None = None) -> None:
    train_stage(options_from(NTDVRecipe, argv), ntdv_stage, write_sentence_card)


def ntdv_stage(recipe: NTDVRecipe, accelerator: Accelerator) -> Stage[SentenceBatch]:
    """What the recipe trains, on what, towards what.

    Raises:
        ValueError: the corpus is not of two languages, or the translators do not belong to it or together.
    """
    set_seed(recipe.seed)
    tokenizer = tokenizer_of_translators(recipe.translators)
    config = config_of_translators(recipe.translators)
    languages = [config.source_language, config.target_language]
    two_languages(recipe.corpus, {*languages})
    pairs = DrawnPairs(recipe.corpus, "train", seed=recipe.seed)
    model = NTDVModel(
        NTDVConfig(
            vocab_size=config.vocab_size,
            embedding_size=config.embedding_size,
            num_hidden_layers=config.num_hidden_layers,
            state_size=config.hidden_size // 2,
            num_attention_heads=recipe.num_attention_heads,
            vector=recipe.vector,
            pad_token_id=config.pad_token_id,
            languages=languages,
        )
    )
    decoders = load_translators(model, recipe.translators)
    model.evidence.copy_(language_evidence(pairs, tokenizer, recipe.max_length, languages))
    if recipe.compile:
        model.compile(dynamic=True)
    return sentence_stage(
        recipe,
        accelerator,
        pairs=pairs,
        encoder=NTDVEncoder(model, decoders, with_vectors=recipe.losses.squared_distance is not None),
        collate=NTDVCollator(tokenizer, recipe.max_length, languages, both_sides=True),
        losses=functools.partial(weighted_losses, chosen_losses(recipe.losses), LOSSES),
    )


if __name__ == "__main__":
    run(main)
