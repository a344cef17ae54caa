"""An encoder in training beside what translates from its hidden states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from modeling_hmde.inference_hmde import evaluating
from replications.sentences.batches import IGNORED
from replications.sentences.encoder import SentenceEncoder
from replications.translation.losses import Translation
from training.loop.cached_gradients import Chunk, Embeddings, Rows

DECODER = "decoder.safetensors"  # in the folder of an encoder
LANGUAGE_SIZE = 32  # of the vector of the target language, as in LASER


class Decoder(nn.Module):
    """What translates. `lm_head` turns what `forward` returns into logits of the next token."""

    lm_head: nn.Linear

    def forward(self, memory: Tensor, mask: Tensor | None, languages: Tensor, tokens: Tensor) -> Tensor:
        """
        Args:
            memory: (rows, positions, hidden), what the decoder sees of the encoder: one vector, or all hidden states.
            mask: (rows, positions), 1 where there is one; None where all are.
            languages: (rows,), the target languages, by their places among the pivots.
            tokens: (rows, tokens), of the translation.

        Returns:
            (rows, tokens, width)
        """
        raise NotImplementedError


class TranslatingEncoder(SentenceEncoder):
    """
    Args:
        model: its first hidden state is the vector of a sentence.
        decoder: what translates.
        options: of the translation.
        bottleneck: the decoder sees the vector of a sentence alone, or else all its hidden states.
        with_vectors: whether a loss compares the vectors.
    """

    def __init__(
        self, model: PreTrainedModel, decoder: Decoder, options: Translation, *, bottleneck: bool, with_vectors: bool
    ) -> None:
        super().__init__(model, "cls")
        self.decoder = decoder
        self.options = options
        self.bottleneck = bottleneck
        self.with_vectors = with_vectors

    def embed(self, chunk: Chunk) -> Embeddings:
        """
        Args:
            chunk: `sentences`, see TranslationCollator.

        Returns:
            if asked for, `sentences`, their vectors (rows, hidden); `translation`, the sum over the tokens of each
            row's translation, (rows, 1), 0 where there is none.
        """
        rows = chunk["sentences"]
        hidden_states = self.hidden_states(rows)
        vectors = self.pooled(hidden_states, rows)
        memory, mask = (vectors.unsqueeze(1), None) if self.bottleneck else (hidden_states, rows["attention_mask"])
        translated = (rows["target_language"] != IGNORED).nonzero().flatten()
        losses = vectors.new_zeros(len(vectors), dtype=torch.float32)
        losses = add_translation_losses(
            losses, self.decoder, memory, mask, rows, translated, self.options.label_smoothing
        )
        embeddings = {"sentences": vectors} if self.with_vectors else {}
        return embeddings | {"translation": losses.unsqueeze(1)}

    def token_accuracy(self, chunks: list[Chunk]) -> float:
        """The share of the tokens of all translations that are the decoder's first choice, given those before them.

        Args:
            chunks: of `sentences` that are all translated, from all hidden states.
        """
        right = count = 0
        with evaluating(self):
            for chunk in chunks:
                rows = chunk["sentences"]
                all_rows = torch.arange(len(rows["input_ids"]), device=rows["input_ids"].device)
                memory = self.hidden_states(rows)
                logits, tokens, _ = next_tokens(self.decoder, memory, rows["attention_mask"], rows, all_rows)
                right += int((logits.argmax(dim=-1) == tokens).sum())
                count += len(tokens)
        return right / count

    def save(self, folder: Path) -> None:
        super().save(folder)
        if self.options.keep_decoder:
            save_file(self.decoder.state_dict(), folder / DECODER)


def add_translation_losses(
    losses: Tensor,
    decoder: Any,
    memory: Tensor,
    mask: Tensor | None,
    rows: Rows,
    translated: Tensor,
    label_smoothing: float,
) -> Tensor:
    """Losses (rows,) with what the tokens of the translations of some rows (`translated`) cost added to their rows."""
    if not len(translated):
        return losses
    logits, tokens, row_of = next_tokens(decoder, memory, mask, rows, translated)
    costs = F.cross_entropy(logits.float(), tokens, reduction="none", label_smoothing=label_smoothing)
    return losses.index_add(0, row_of, costs)


def next_tokens(
    decoder: Any, memory: Tensor, mask: Tensor | None, rows: Rows, translated: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What a decoder predicts of the translations of some rows.

    Args:
        memory, mask: see Decoder.
        rows: with `target_tokens` and `target_language`, see TranslationCollator.
        translated: (translated,), which rows.

    Returns:
        logits (tokens, vocabulary), given the tokens before; the tokens (tokens,); the row of each (tokens,).
    """
    targets = rows["target_tokens"][translated]
    is_token = targets[:, 1:] != IGNORED
    given = targets[:, :-1].clamp(min=0)  # what stands after the end is seen by nothing that counts
    mask = None if mask is None else mask[translated]
    decoded = decoder(memory[translated], mask, rows["target_language"][translated], given)
    return decoder.lm_head(decoded[is_token]), targets[:, 1:][is_token], translated[is_token.nonzero()[:, 0]]


def load_decoder(decoder: Decoder, folder: str | None) -> None:
    """Take the weights of a decoder from the folder of an encoder, if one lies there.

    Raises:
        ValueError: that is another decoder.
    """
    saved = Path(folder or "", DECODER)
    if folder is None or not saved.is_file():
        return
    try:
        decoder.load_state_dict(load_file(saved))
    except RuntimeError as error:
        raise ValueError(
            f"{saved} is of another decoder than the recipe says; give the recipe its decoder, pivots and "
            f"max_length, or remove the file to start with a new one ({error})"
        ) from error
