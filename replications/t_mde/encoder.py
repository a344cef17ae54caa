"""An encoder in training beside what translates from its hidden states."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from replications.sentences.batches import IGNORED, Rows
from replications.sentences.encoder import SentenceEncoder
from replications.t_mde.decoder import TransformerDecoder
from replications.t_mde.losses import Translation
from training.loop.cached_gradients import Chunk, Embeddings

DECODER = "decoder.safetensors"  # in the folder of an encoder


class TranslatingEncoder(SentenceEncoder):
    """
    Args:
        model: its first hidden state is the vector of a sentence.
        decoder: what translates.
        options: of the translation.
        with_vectors: whether a loss compares the vectors.
    """

    def __init__(
        self, model: PreTrainedModel, decoder: TransformerDecoder, options: Translation, *, with_vectors: bool
    ) -> None:
        super().__init__(model, "cls")
        self.decoder = decoder
        self.options = options
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
        bottleneck = self.options.bottleneck
        memory, mask = (vectors.unsqueeze(1), None) if bottleneck else (hidden_states, rows["attention_mask"])
        embeddings = {"sentences": vectors} if self.with_vectors else {}
        return embeddings | {"translation": self.translation_losses(memory, mask, rows).unsqueeze(1)}

    def translation_losses(self, memory: Tensor, mask: Tensor | None, rows: Rows) -> Tensor:
        """What the tokens of each row's translation cost, added up, (rows,), float32.

        Args:
            memory, mask: see TransformerDecoder.
            rows: with `target_tokens` and `target_language`, see TranslationCollator.
        """
        losses = memory.new_zeros(len(memory), dtype=torch.float32)
        translated = (rows["target_language"] != IGNORED).nonzero().flatten()
        if not len(translated):
            return losses
        targets = rows["target_tokens"][translated]
        is_token = targets[:, 1:] != IGNORED
        given = targets[:, :-1].clamp(min=0)  # what stands after the end is seen by nothing that counts
        mask = None if mask is None else mask[translated]
        decoded = self.decoder(memory[translated], mask, rows["target_language"][translated], given)
        logits = self.decoder.lm_head(decoded[is_token]).float()
        smoothing = self.options.label_smoothing
        costs = F.cross_entropy(logits, targets[:, 1:][is_token], reduction="none", label_smoothing=smoothing)
        return losses.index_add(0, translated[is_token.nonzero()[:, 0]], costs)

    def save(self, folder: Path) -> None:
        super().save(folder)
        if self.options.keep_decoder:
            save_file(self.decoder.state_dict(), folder / DECODER)


def load_decoder(decoder: TransformerDecoder, folder: str | None) -> None:
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
