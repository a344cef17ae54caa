"""The stage of an encoder that learns to translate, whatever its decoder is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from replications.drawn_pairs import DrawnPairs
from replications.new_encoder import StartOptions, start_encoder, start_tokenizer
from replications.sentences.batches import SentenceBatch
from replications.sentences.encoder import prepare_encoder
from replications.sentences.losses import weighted_losses
from replications.sentences.stage import sentence_stage
from replications.translation.data import TranslationCollator
from replications.translation.encoder import Decoder, TranslatingEncoder, load_decoder
from replications.translation.losses import LOSSES, Translation
from training.loop.loop import Stage


def translating_encoder(
    recipe: StartOptions,
    tokenizer: PreTrainedTokenizerBase,
    chosen: Mapping[str, Any],
    make_decoder: Callable[[PreTrainedModel], Decoder],
    *,
    bottleneck: bool = True,
    change_encoder: Callable[[PreTrainedModel], None] | None = None,
) -> TranslatingEncoder:
    """The encoder to train, beside its decoder.

    Args:
        chosen: options of the losses by name, among them `translation`.
        make_decoder: from the encoder to what translates.
        bottleneck: the decoder sees the vector of a sentence alone, or else all its hidden states.
        change_encoder: what is done to the encoder before it is trained.

    Raises:
        ValueError: the encoder or the decoder are not what the recipe says.
    """
    model = start_encoder(recipe, tokenizer)
    if change_encoder is not None:
        change_encoder(model)
    prepare_encoder(model, recipe)
    decoder = make_decoder(model)
    load_decoder(decoder, recipe.sentence_encoder)
    compares = chosen.keys() != {"translation"}
    return TranslatingEncoder(
        model, decoder, chosen["translation"], bottleneck=bottleneck, with_vectors=compares
    ).train()


def translation_stage(
    recipe: StartOptions,
    accelerator: Accelerator,
    chosen: Mapping[str, Any],
    make_encoder: Callable[[Any, PreTrainedTokenizerBase], TranslatingEncoder],
    **stage_options: Any,
) -> Stage[SentenceBatch]:
    """What the recipe trains, on what, towards what.

    Args:
        chosen: options of the losses by name, among them `translation`.
        make_encoder: from the recipe and the tokenizer to the encoder to train.
        stage_options: see `sentence_stage`.

    Raises:
        ValueError: the pairs, the encoder or the decoder are not what the recipe says.
    """
    options: Translation = chosen["translation"]
    set_seed(recipe.seed)
    pairs = DrawnPairs(recipe.corpus, "train", seed=recipe.seed)
    check_pivots(recipe.corpus, pairs.languages, options.pivots)
    tokenizer = start_tokenizer(recipe, pairs, accelerator)
    encoder = make_encoder(recipe, tokenizer)
    return sentence_stage(
        recipe,
        accelerator,
        pairs=pairs,
        encoder=encoder,
        collate=TranslationCollator(tokenizer, recipe.max_length, options.pivots, both_sides=encoder.with_vectors),
        losses=functools.partial(weighted_losses, chosen, LOSSES),
        **stage_options,
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
