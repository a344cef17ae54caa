"""Sentence encoders that were never trained on documents: a document's vector is the mean over those of its pieces.

They are computed by the code of HMDE, so that their speeds and precisions compare: an HMDE whose document encoder is
the untrained identity (`document_norm="pre"`) takes the mean of the vectors of a document's pieces, whatever the
tokenizer makes its pieces: the first tokens, sliding windows, or sentences.
"""

from __future__ import annotations

from typing import Any

import torch

from evaluation.recipes import SystemOptions
from evaluation.systems.hmde import HMDESystem
from hmde.common.device import device
from hmde.common.saved_models import model_type_of, opening
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.rows_hmde import Piece, Row


class CuttingTokenizer(HMDETokenizer):
    """Cuts a document without a warning: where to cut is part of what a baseline is."""

    def _warn_of_truncation(self, pieces: list[Piece], row: Row, limit: int | None) -> None:
        pass


# Fields of HMDEConfig for the smallest document encoder there is: as the untrained identity, it adds nothing but time.
MEAN_OF_PIECES: dict[str, Any] = {
    "document_norm": "pre",
    "num_document_layers": 1,
    "num_document_attention_heads": 1,
    "document_intermediate_size": 1,
}

# How each kind divides a document, and how many of the pieces it reads if `max_pieces` does not say.
SENTENCES = {"segmentation": "sentences", "max_sentences": 128}
PIECES: dict[str, dict[str, Any]] = {
    "first": {"segmentation": "chunks", "max_sentences": 1},
    "windows": {"segmentation": "windows", "max_sentences": 32},
    "sentences": SENTENCES,
    "passages": SENTENCES,
}
LONGEST_SENTENCE_OF_A_PASSAGE = 128  # tokens


def check(name: str, options: SystemOptions) -> None:
    """Raises:
    ValueError: the model cannot be found, or is an HMDE.
    """
    if model_type_of(name, options.model) == "hmde":
        raise ValueError(f"{name}: {options.model} holds an HMDE, no sentence encoder; its kind is hmde")


def load(options: SystemOptions, dtype: torch.dtype) -> HMDESystem:
    reading: dict[str, Any] = {}  # fields of HMDEConfig
    longest = options.max_length or (512 if options.kind in ("first", "passages") else 128)
    if options.kind == "passages":
        reading |= {"document_pooling": "token_mean", "passage_length": longest}
        longest = min(longest, LONGEST_SENTENCE_OF_A_PASSAGE)
    most = {"max_sentences": options.max_pieces} if options.max_pieces is not None else {}
    prompts = {"sentence_prompt": options.document_prompt, "query_prompt": options.query_prompt}
    if options.pooling is None:  # the pipeline's own where it has them
        prompts = {name: prompt for name, prompt in prompts.items() if prompt}
    else:
        reading |= {"sentence_pooling": options.pooling, "sentence_modules": ()}
    with opening(options.model):
        tokenizer = CuttingTokenizer.from_sentence_encoder(
            options.model,
            **prompts,
            max_sentence_length=longest,
            **PIECES[options.kind] | most,
        )
        model = HMDEForDocumentEmbedding.from_sentence_encoder(
            options.model,
            dtype=dtype,
            max_sentence_length=longest,
            **MEAN_OF_PIECES,
            **reading,
        )
    model.to(device())  # type: ignore[arg-type]
    return HMDESystem(model, tokenizer)
