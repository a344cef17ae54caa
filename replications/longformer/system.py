"""mLongformer as a system of an evaluation (kind `longformer`): a flat model that reads long documents whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from evaluation.systems import l2_normalize
from hmde.common.device import device
from hmde.common.saved_models import model_type_of
from modeling_hmde.packing_hmde import bucket_by_length
from modeling_hmde.sentence_reading_hmde import MAX_TOKENS_PER_BUCKET
from replications.system_options import OtherSystemOptions


@dataclass
class LongformerSystem:
    """A flat model that reads long documents (mLongformer; paper, section 3.3).

    Args:
        model: a Longformer, on its device, in its dtype.
        tokenizer: whose model_max_length is the longest document.
        global_attention: whether the first token sees the whole document, or a window only, as in the paper's code.
        pooling: `cls`, the first token's vector (paper), or `mean`, of all tokens.
        query_prompt, document_prompt: put before each text.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    global_attention: bool = True
    pooling: str = "cls"
    query_prompt: str = ""
    document_prompt: str = ""

    def __post_init__(self) -> None:
        self.windows = list(self.model.config.attention_window)

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        return self._encode([self.query_prompt + query for query in queries])

    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        return self._encode([self.document_prompt + document for document in documents])

    @torch.inference_mode()
    def _encode(self, texts: list[str]) -> np.ndarray:
        rows = self.tokenizer(texts, truncation=True)["input_ids"]
        vectors = np.empty((len(rows), self.model.config.hidden_size), dtype=np.float32)
        lengths = torch.tensor([len(row) for row in rows])
        widest = torch.tensor([max(self._windows_for(len(row))) for row in rows])
        padded_lengths = -(-lengths // widest) * widest  # a Longformer's rows are multiples of its widest window
        for batch in bucket_by_length(padded_lengths, MAX_TOKENS_PER_BUCKET):
            self._set_windows(self._windows_for(int(lengths[batch].max())))
            padded = self.tokenizer.pad(
                {"input_ids": [rows[index] for index in batch]},
                pad_to_multiple_of=max(self.model.config.attention_window),
                return_tensors="pt",
            )
            inputs = dict(padded.to(self.model.device))
            if self.global_attention:
                inputs["global_attention_mask"] = first_token(inputs["input_ids"])
            states = self.model(**inputs).last_hidden_state
            if self.pooling == "cls":
                pooled = states[:, 0].float()
            else:
                real = inputs["attention_mask"].unsqueeze(-1)
                pooled = (states.float() * real).sum(dim=1) / real.sum(dim=1)
            vectors[batch.numpy()] = pooled.cpu().numpy()
        return l2_normalize(vectors)

    def _windows_for(self, length: int) -> list[int]:
        """The window of each layer for a text of `length` tokens.

        A token sees half a window on either side, so a short text needs only narrow windows: the vectors stay the same
        and a query costs less. A row must be a multiple of every layer's window; powers of two make sure that it is.
        """
        whole_text = 1 << (2 * length - 1).bit_length()
        return [min(window, whole_text) for window in self.windows]

    def _set_windows(self, windows: list[int]) -> None:
        self.model.config.attention_window = windows
        encoder: Any = self.model.encoder
        for layer, window in zip(encoder.layer, windows):
            layer.attention.self.one_sided_attn_window_size = window // 2


def first_token(input_ids: Tensor) -> Tensor:
    """A mask of global attention, (documents, tokens), that is 1 at the first token of each document only."""
    mask = torch.zeros_like(input_ids)
    mask[:, 0] = 1
    return mask


def check(name: str, options: OtherSystemOptions) -> None:
    """Raises:
    ValueError: the model cannot be found or is no Longformer, or its pooler, which was never trained, is asked for.
    """
    if options.pooling == "pooler":
        raise ValueError(f"{name}: pooling is pooler, which a Longformer has untrained; use cls or mean")
    model_type = model_type_of(name, options.model)
    if model_type != "longformer":
        raise ValueError(f"{name}: {options.model} holds a model of type {model_type}, no Longformer")


def load(options: OtherSystemOptions, dtype: torch.dtype = torch.float32) -> LongformerSystem:
    return LongformerSystem(
        AutoModel.from_pretrained(options.model, dtype=dtype, add_pooling_layer=False).to(device()),
        AutoTokenizer.from_pretrained(options.model),
        options.global_attention,
        options.pooling or "cls",
        options.query_prompt,
        options.document_prompt,
    )
