"""Train a translation (NMT) model of one language into another by GRUs with attention. An NTDV stands on two of them.

    accelerate launch replications/ntdv/train_translator.py --config replications/ntdv/translator.yaml [--key value ...]

Reads a folder of parallel text of two languages; writes the encoder as a model folder, and the decoder into it as
decoder.safetensors. The step that is kept predicts the largest share of the tokens of dev translations.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hmde.common.terminal
import hmde.common.threads

from accelerate import Accelerator
from accelerate.utils import send_to_device
from transformers import PreTrainedTokenizerBase

from hmde.common.command_line import options_from, run
from replications.new_encoder import StartOptions
from replications.ntdv.decoder import GRUDecoder
from replications.sentences.batches import SentenceBatch, SentenceCollator
from replications.sentences.cards import write_sentence_card
from replications.sentences.pairs import DevPairs, pair_files
from replications.translation.encoder import TranslatingEncoder
from replications.translation.losses import Translation
from replications.translation.stage import translating_encoder, translation_stage
from training.loop.cached_gradients import cut_into_chunks
from training.loop.loop import Progress, Stage, train_stage

ABOUT = """\
A translation (NMT) model: this encoder, and a decoder that looks at its hidden states (`decoder.safetensors`). An NTDV
stands on two of them."""
MEASURE = "The share of the tokens of dev translations that are the first choice, given those before them"


@dataclass(kw_only=True)
class TranslatorRecipe(StartOptions):
    """A training run of a translation model."""

    target_language: str
    """The language into which it translates, one of the two of the corpus."""


def main(argv: list[str] | None = None) -> None:
    train_stage(options_from(TranslatorRecipe, argv), translator_stage, write_card)


def translator_stage(recipe: TranslatorRecipe, accelerator: Accelerator) -> Stage[SentenceBatch]:
    """What the recipe trains, on what, towards what.

    Raises:
        ValueError: the corpus is not of two languages, or translates into another one.
    """
    target = recipe.target_language
    (source,) = two_languages(recipe.corpus, {target}) - {target}

    def evaluate(encoder: Any, collate: SentenceCollator, dev_pairs: DevPairs) -> dict[str, float]:
        rows = send_to_device(collate(list(dev_pairs.examples())).rows, accelerator.device)
        accuracy = encoder.token_accuracy(cut_into_chunks(rows, recipe.max_tokens_per_chunk))
        return {f"{source}-{target}_token_accuracy": accuracy, "token_accuracy": accuracy}

    return translation_stage(
        recipe,
        accelerator,
        translation_alone(recipe),
        functools.partial(translator_encoder, source),
        evaluate=evaluate,
        criterion="token_accuracy",
    )


def translation_alone(recipe: TranslatorRecipe) -> dict[str, Translation]:
    """The losses of a translation model: the cross-entropy, without label smoothing, as in the thesis."""
    return {"translation": Translation(pivots=[recipe.target_language], label_smoothing=0.0, keep_decoder=True)}


def translator_encoder(source: str, recipe: TranslatorRecipe, tokenizer: PreTrainedTokenizerBase) -> TranslatingEncoder:
    """The encoder of a translation model, which knows its languages, and the decoder.

    Args:
        source: the language that is read.
    """
    languages = {"source_language": source, "target_language": recipe.target_language}
    return translating_encoder(
        recipe,
        tokenizer,
        translation_alone(recipe),
        lambda encoder: GRUDecoder(encoder.config),
        bottleneck=False,
        change_encoder=lambda encoder: encoder.config.update(languages),
    )


def two_languages(corpus: str, named: set[str]) -> set[str]:
    """The languages of a corpus of one pair of languages.

    Raises:
        ValueError: the corpus has more, or others than those that the recipe names.
    """
    tables = [path.stem for path in pair_files(Path(corpus))]
    languages = {*tables[0].split("-")}
    if len(tables) > 1 or not named <= languages:
        raise ValueError(
            f"{corpus} has pairs of {', '.join(tables)}, and the recipe names {', '.join(sorted(named))}; a "
            "translation model, and an NTDV, knows two languages: give a corpus of these alone"
        )
    return languages


def write_card(recipe: TranslatorRecipe, folder: Path, progress: Progress) -> None:
    """Write the model card into the finished folder."""
    score = "token_accuracy"
    write_sentence_card(recipe, folder, progress, about=ABOUT, score=score, measure=MEASURE, task="translation")


if __name__ == "__main__":
    run(main)
