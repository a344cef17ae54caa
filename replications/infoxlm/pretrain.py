"""Pretrain InfoXLM on monolingual text and pairs of sentences.

    accelerate launch replications/infoxlm/pretrain.py --config replications/infoxlm/infoxlm.yaml [--key value ...]

Reads and writes what replications/sentences/pretrain.py does. All options: `--help`, or this file and losses.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import hmde.common.terminal
import hmde.common.threads

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from hmde.common.command_line import options_from, run
from replications.infoxlm.data import InfoXLMCollator, InfoXLMPairs, Texts
from replications.infoxlm.losses import InfoXLMLosses, infoxlm_losses
from replications.infoxlm.momentum import MomentumQueue
from replications.masked_lm import MaskedLMOptions, check_mask_token, encoder_with_head, predict_tokens
from replications.new_encoder import start_tokenizer
from replications.sentences.batches import SentenceBatch
from replications.sentences.cards import write_sentence_card
from replications.sentences.encoder import SentenceEncoder
from replications.sentences.losses import PairVectors, chosen_losses, weighted_losses
from replications.sentences.stage import sentence_stage
from training.loop.cached_gradients import Chunk, Embeddings, Rows
from training.loop.loop import Stage, train_stage


@dataclass(kw_only=True)
class InfoXLMRecipe(MaskedLMOptions):
    """A pretraining run of InfoXLM."""

    losses: InfoXLMLosses = field(default_factory=InfoXLMLosses)
    """What is learned: mmlm, tlm, xlco, or some of them."""

    keep_mlm_head: bool = False
    """Save the head that predicts tokens with the encoder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep == "validation_loss" and {*chosen_losses(self.losses)} == {"xlco"}:
            raise ValueError(
                "losses.xlco has no part in the validation loss, because evaluations have no queue; add mmlm or tlm, "
                "or choose another keep"
            )


class InfoXLMEncoder(SentenceEncoder):
    """
    Args:
        recipe: says how vectors are read, whether they are projected, and whether the head is saved.
    """

    def __init__(self, model: PreTrainedModel, recipe: InfoXLMRecipe) -> None:
        super().__init__(model, recipe.pooling, recipe.sentence_layer)
        self.keep_head = recipe.keep_mlm_head
        self.projection = None
        if recipe.losses.xlco is not None:  # as in the authors' code; it is not saved (section 3.3)
            self.projection = nn.Linear(model.config.hidden_size, model.config.hidden_size, bias=False)
            nn.init.normal_(self.projection.weight, std=0.02)

    def embed(self, chunk: Chunk) -> Embeddings:
        """
        Args:
            chunk: rows by name, see InfoXLMCollator.

        Returns:
            `mmlm` and `tlm`, the sum over the masked tokens of each row, (rows, 1); `queries` and `keys`, projected
            vectors (rows, hidden).
        """
        embeddings = {}
        for name, rows in chunk.items():
            if "labels" in rows:
                embeddings[name] = self._masked_tokens(rows)
            else:
                vectors = self.sentence_vectors(rows)
                embeddings[name] = vectors if self.projection is None else self.projection(vectors)
        return embeddings

    def _masked_tokens(self, rows: Rows) -> Tensor:
        """The cross-entropy of each masked token, of one text (equation 2) or of a text and its translation (Conneau
        and Lample, 2019), summed over each row."""
        hidden_states = self.model.base_model(
            input_ids=rows["input_ids"], attention_mask=rows["attention_mask"]
        ).last_hidden_state
        masked = rows["labels"] >= 0
        logits = predict_tokens(self.model, hidden_states[masked])
        losses = F.cross_entropy(logits.float(), rows["labels"][masked], reduction="none")
        row_of = masked.nonzero()[:, 0]
        return losses.new_zeros(len(masked)).index_add(0, row_of, losses).unsqueeze(1)

    def save(self, folder: Path) -> None:
        if self.keep_head:
            self.model.save_pretrained(folder)
        else:
            super().save(folder)


def main(argv: list[str] | None = None) -> None:
    train_stage(options_from(InfoXLMRecipe, argv), infoxlm_stage, write_sentence_card)


def infoxlm_stage(recipe: InfoXLMRecipe, accelerator: Accelerator) -> Stage[SentenceBatch]:
    """What the recipe trains, on what, towards what.

    Raises:
        ValueError: the pairs, the texts, the encoder or the queue are not what the recipe says.
    """
    losses = recipe.losses
    chosen = chosen_losses(losses)
    set_seed(recipe.seed)
    texts = None
    if losses.mmlm is not None and losses.mmlm.texts is not None:
        texts = Texts(losses.mmlm.texts, recipe.language_exponent, recipe.max_length)
    mixup = losses.xlco is not None and losses.xlco.mixup
    pairs = InfoXLMPairs(recipe.corpus, "train", mixup=mixup, texts=texts, seed=recipe.seed)
    if losses.xlco is not None and losses.xlco.queue_size > len(pairs):
        raise ValueError(
            f"queue_size is {losses.xlco.queue_size}, but {recipe.corpus} has {len(pairs)} training pairs, so that "
            "each would meet itself there; lower it"
        )
    tokenizer = start_tokenizer(recipe, pairs, accelerator)
    predicts = losses.mmlm is not None or losses.tlm is not None
    if predicts:
        check_mask_token(tokenizer, recipe.sentence_encoder or recipe.tokenizer)
    encoder = InfoXLMEncoder(encoder_with_head(recipe, tokenizer, with_head=predicts), recipe).train()
    queue = None
    if losses.xlco is not None:
        size, momentum = losses.xlco.queue_size, losses.xlco.queue_momentum
        queue = MomentumQueue(encoder, size, encoder.model.config.hidden_size, momentum, accelerator.device)
    functions = infoxlm_losses(queue, recipe.max_tokens_per_chunk, accelerator.autocast)

    def weigh(vectors: PairVectors) -> dict[str, Tensor]:
        is_validation = not torch.is_grad_enabled()  # in which the queue has no part
        read = {name: options for name, options in chosen.items() if not (name == "xlco" and is_validation)}
        return weighted_losses(read, functions, vectors)

    return sentence_stage(
        recipe,
        accelerator,
        pairs=pairs,
        encoder=encoder,
        collate=InfoXLMCollator(tokenizer, recipe.max_length, recipe.prompt, losses=losses),
        losses=weigh,
        stateful=[queue] if queue is not None else [],
    )


if __name__ == "__main__":
    run(main)
