"""Models of the library sentence-transformers, with all their modules (kind `sentence_transformers`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from evaluation.systems import l2_normalize
from hmde.common.device import device
from hmde.common.saved_models import opening
from replications.system_options import OtherSystemOptions

if TYPE_CHECKING:  # importing it takes seconds, and few recipes need it
    from sentence_transformers import SentenceTransformer


@dataclass
class SentenceTransformersSystem:
    """A model of sentence-transformers with all its modules, such as LaBSE with its dense layer and normalisation.

    Args:
        model: on its device, in its dtype.
        query_prompt, document_prompt: put before each text; empty for what the model itself says.
    """

    model: SentenceTransformer
    query_prompt: str = ""
    document_prompt: str = ""

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        return self._encode(self.model.encode_query, queries, self.query_prompt)

    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        return self._encode(self.model.encode_document, documents, self.document_prompt)

    def _encode(self, encode: Any, texts: Sequence[str], prompt: str) -> np.ndarray:
        vectors = encode(list(texts), prompt=prompt or None, convert_to_numpy=False, show_progress_bar=False)
        return l2_normalize(torch.stack(list(vectors)).float().cpu().numpy())


def check(name: str, options: OtherSystemOptions) -> None:
    """Nothing: the library itself refuses what it cannot load, and its models need not be ones of transformers."""


def load(options: OtherSystemOptions, dtype: torch.dtype) -> SentenceTransformersSystem:
    from sentence_transformers import SentenceTransformer

    with opening(options.model):
        model = SentenceTransformer(
            options.model,
            device=device(),
            trust_remote_code=options.trust_remote_code,
            model_kwargs={"dtype": dtype},
        )
    if options.max_length is not None:
        model.max_seq_length = options.max_length
    return SentenceTransformersSystem(model, options.query_prompt, options.document_prompt)
