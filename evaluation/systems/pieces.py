"""Sentence encoders that were never trained on documents: a document's vector is the mean over those of its pieces.

They are computed by the code of HMDE, so that their speeds and precisions compare: an HMDE whose document encoder is
the untrained identity (`document_norm="pre"`) takes the mean of the vectors of a document's pieces, whatever the
tokenizer makes its pieces: the first tokens, sliding windows, or sentences.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig

from common.device import device
from common.saved_models import model_type_of
from evaluation.recipes import SystemOptions
from evaluation.systems.hmde import HMDESystem
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.encoders_hmde import check_sentence_layer
from modeling_hmde.tokenization_hmde import Piece, Tokens


class CuttingTokenizer(HMDETokenizer):
    """Cuts a document without a warning: where to cut is part of what a baseline is."""

    def _warn_of_truncation(self, pieces: list[Piece], row: Piece, limit: int | None) -> None:
        pass


class WindowTokenizer(CuttingTokenizer):
    """Makes the pieces of a document overlapping windows of its tokens, however its sentences run.

    A window and the next share a third of their text (paper, section 3.3: N_S / 3, 42 tokens of 128 with a start and
    an end token). The last window ends where the document ends, so it may be shorter.
    """

    def _frame_tokens(self, tokens: Tokens, begin: int, prompt_ids: list[int], once: bool) -> list[Piece]:
        if once:  # a query
            return super()._frame_tokens(tokens, begin, prompt_ids, once)
        room = self.max_sentence_length - len(self._prefix_ids) - len(self._suffix_ids) - len(prompt_ids)
        overlap = room // 3
        starts = range(0, max(len(tokens.ids) - overlap, 1), room - overlap)
        return [self._frame_piece(prompt_ids, tokens, slice(start, start + room), begin) for start in starts]


# How each kind divides a document: the tokenizer, and how many pieces it makes of what.
SENTENCES = {"segmentation": "sentences", "max_sentences": 128}
PIECES: dict[str, tuple[type[HMDETokenizer], dict[str, Any]]] = {
    "first": (CuttingTokenizer, {"segmentation": "chunks", "max_sentences": 1}),
    "windows": (WindowTokenizer, {"segmentation": "chunks", "max_sentences": 32}),
    "sentences": (CuttingTokenizer, SENTENCES),
    "weighted_sentences": (CuttingTokenizer, SENTENCES),
    "passages": (CuttingTokenizer, SENTENCES),
}
LONGEST_SENTENCE_OF_A_PASSAGE = 128  # tokens


def check(name: str, options: SystemOptions) -> None:
    """Raises:
    ValueError: the model cannot be found, is an HMDE, or does not have the layer.
    """
    if model_type_of(name, options.model) == "hmde":
        raise ValueError(f"{name}: {options.model} holds an HMDE, no sentence encoder; its kind is hmde")
    if options.sentence_layer is not None:
        try:
            check_sentence_layer(options.sentence_layer, AutoConfig.from_pretrained(options.model))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


def load(options: SystemOptions, dtype: torch.dtype = torch.float32) -> HMDESystem:
    tokenizer_class, pieces = PIECES[options.kind]
    reading: dict[str, Any] = {}  # fields of HMDEConfig
    longest = options.max_length or (512 if options.kind in ("first", "passages") else 128)
    if options.kind in ("weighted_sentences", "passages"):
        reading["document_pooling"] = "token_mean"
    if options.kind == "passages":
        reading["passage_length"] = longest
        longest = min(longest, LONGEST_SENTENCE_OF_A_PASSAGE)
    tokenizer = tokenizer_class.from_sentence_encoder(
        options.model,
        sentence_prompt=options.document_prompt,
        query_prompt=options.query_prompt,
        max_sentence_length=longest,
        **pieces,
    )
    model = HMDEForDocumentEmbedding.from_sentence_encoder(
        options.model,
        dtype=dtype,
        sentence_pooling=options.pooling,
        sentence_layer=options.sentence_layer,
        max_sentence_length=longest,
        document_norm="pre",
        **reading,
        # The smallest document encoder there is: as the identity, it adds nothing but time.
        num_document_layers=1,
        num_document_attention_heads=1,
        document_intermediate_size=1,
    )
    model.to(device())  # type: ignore[arg-type]
    return HMDESystem(model, tokenizer)
