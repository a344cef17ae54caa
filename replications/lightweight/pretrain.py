"""Pretrain the lightweight sentence encoder on pairs of sentences.

    accelerate launch replications/lightweight/pretrain.py --config replications/lightweight/lightweight.yaml

Reads and writes what replications/sentences/pretrain.py does. All options: `--help`, or this file and losses.py.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import hmde.common.terminal
import hmde.common.threads

from accelerate import Accelerator
from accelerate.utils import set_seed

from hmde.common.command_line import options_from, run
from replications.drawn_pairs import DrawnPairs
from replications.lightweight.data import GenerativeCollator
from replications.lightweight.losses import LOSSES, LightweightLosses, words_from_vectors
from replications.masked_lm import MaskedLMOptions, check_mask_token, encoder_with_head, predict_tokens
from replications.new_encoder import start_tokenizer
from replications.sentences.batches import SentenceBatch, SentenceCollator
from replications.sentences.cards import write_sentence_card
from replications.sentences.encoder import SentenceEncoder
from replications.sentences.losses import Teacher, chosen_losses, student_losses, weighted_losses
from replications.sentences.stage import sentence_stage
from training.loop.cached_gradients import Chunk, Embeddings
from training.loop.loop import Stage, train_stage


@dataclass(kw_only=True)
class LightweightRecipe(MaskedLMOptions):
    """A pretraining run of the lightweight encoder."""

    losses: LightweightLosses = field(default_factory=LightweightLosses)
    """What is learned: generative, align, similarity, or some of them."""


class GenerativeEncoder(SentenceEncoder):
    """Gives, beside the vectors of `sentences`, how far the words predicted from them are from their targets
    (`divergences`, (rows, 1))."""

    def embed(self, chunk: Chunk) -> Embeddings:
        rows = chunk["sentences"]
        vectors = self.sentence_vectors(rows)
        logits = predict_tokens(self.model, vectors)
        divergences = words_from_vectors(logits, rows["target_ids"], rows["target_shares"])
        return {"sentences": vectors, "divergences": divergences.unsqueeze(1)}


def main(argv: list[str] | None = None) -> None:
    train_stage(options_from(LightweightRecipe, argv), lightweight_stage, write_sentence_card)


def lightweight_stage(recipe: LightweightRecipe, accelerator: Accelerator) -> Stage[SentenceBatch]:
    """What the recipe trains, on what, towards what.

    Raises:
        ValueError: the pairs, the encoder or the teacher are not what the recipe says.
    """
    generative, chosen = recipe.losses.generative, chosen_losses(recipe.losses)
    set_seed(recipe.seed)
    pairs = DrawnPairs(recipe.corpus, "train", seed=recipe.seed)
    tokenizer = start_tokenizer(recipe, pairs, accelerator)
    if generative is not None and generative.task != "xtr":
        check_mask_token(tokenizer, recipe.sentence_encoder)
    model = encoder_with_head(recipe, tokenizer, with_head=generative is not None)
    make_encoder = SentenceEncoder if generative is None else GenerativeEncoder
    encoder, teacher = make_encoder(model, recipe.pooling, recipe.sentence_layer).train(), None
    if recipe.losses.distillation is not None:
        hidden_size = model.config.hidden_size
        teacher = Teacher(recipe.losses.distillation, hidden_size, accelerator, recipe.max_tokens_per_chunk)
    rows = tokenizer, recipe.max_length, recipe.prompt, teacher.tokenizer if teacher else None
    return sentence_stage(
        recipe,
        accelerator,
        pairs=pairs,
        encoder=encoder,
        collate=GenerativeCollator(*rows, task=generative.task) if generative else SentenceCollator(*rows),
        losses=functools.partial(weighted_losses, chosen, student_losses(teacher) | LOSSES),
        teacher=teacher,
    )


if __name__ == "__main__":
    run(main)
