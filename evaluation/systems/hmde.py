"""Systems that are an HMDE (kind `hmde`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from evaluation.recipes import SystemOptions
from evaluation.systems import l2_normalize
from hmde.common.device import device
from hmde.common.saved_models import check_is_hmde, load_hmde
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer


@dataclass
class HMDESystem:
    """A system that is an HMDE, its tokenizer and nothing else.

    Args:
        model: on its device, in its dtype.
        tokenizer: decides what the pieces of a document are.
    """

    model: HMDEForDocumentEmbedding
    tokenizer: HMDETokenizer

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        return l2_normalize(self.model.encode_queries(queries, self.tokenizer, normalize=False))

    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        return l2_normalize(self.model.encode_documents(documents, self.tokenizer, language=language, normalize=False))


def check(name: str, options: SystemOptions) -> None:
    """Raises:
    ValueError: the model cannot be found, or is no HMDE.
    """
    check_is_hmde(name, options.model)


def load(options: SystemOptions, dtype: torch.dtype) -> HMDESystem:
    model, tokenizer = load_hmde(options.model, dtype)
    model.to(device())  # type: ignore[arg-type]
    return HMDESystem(model, tokenizer)
