"""The systems under comparison: texts in, unit vectors out. Knows no data files and no measures.

All are computed by one piece of code, so that their speeds and precisions compare. An HMDE whose document encoder is
the untrained identity (`document_norm="pre"`) takes the mean of the vectors of a document's pieces, whatever the
tokenizer makes its pieces: the first tokens, sliding windows, or sentences.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from transformers import AutoConfig

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.configuration_hmde import SentencePooling
from modeling_hmde.tokenization_hmde import Piece

Dtype = Literal["float32", "bfloat16"]


class System(Protocol):
    """What an evaluation asks of a system."""

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        """(queries, hidden), float32, rows of unit length."""

    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        """(documents, hidden), float32, rows of unit length. All documents are in one language, an ISO 639-1 code."""


@dataclass
class HMDESystem:
    """A system that is an HMDE, its tokenizer and nothing else.

    Args:
        model: on its device, in its dtype.
        tokenizer: decides what the pieces of a document are.
        show_progress_bar: over texts.
    """

    model: HMDEForDocumentEmbedding
    tokenizer: HMDETokenizer
    show_progress_bar: bool = False

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        vectors = self.model.encode_queries(
            queries, self.tokenizer, normalize=False, show_progress_bar=self.show_progress_bar
        )
        return _to_unit_length(vectors)

    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        vectors = self.model.encode_documents(
            documents, self.tokenizer, language=language, normalize=False, show_progress_bar=self.show_progress_bar
        )
        return _to_unit_length(vectors)


@dataclass
class SystemRecipe:
    """A system as a recipe names it.

    Args:
        kind: `hmde`, or a way to use a sentence encoder that knows no documents: `first`, the first tokens of a
            document as one sentence; `windows`, the mean over windows of 128 tokens that overlap by a third, at most 32
            of them (LaBSE-Seg; paper, section 3.3); `sentences`, the mean over its first 32 sentences, divided as an
            HMDE divides them.
        model: folder or Hub name, of an HMDE or of the sentence encoder.
        pooling: how the sentence encoder's vector is read from it: cls, mean or pooler. An HMDE knows its own.
        query_prompt: put before each query, such as e5's "query: ". An HMDE knows its own.
        document_prompt: put before each piece of a document, such as e5's "passage: ". An HMDE knows its own.
        max_length: tokens of a piece, start token, end token and prompt included: for `first` 512 if not given, for
            `windows` and `sentences` 128. An HMDE knows its own.
    """

    kind: Literal["hmde", "first", "windows", "sentences"]
    model: str
    pooling: SentencePooling | None = None
    query_prompt: str = ""
    document_prompt: str = ""
    max_length: int | None = None


class WindowTokenizer(HMDETokenizer):
    """Makes the pieces of a document overlapping windows of its tokens, however its sentences run.

    A window and the next share a third of their text (paper, section 3.3: N_S / 3, 42 tokens of 128 with a start and
    an end token). The last window ends where the document ends, so it may be shorter.
    """

    def _frame_tokens(
        self, ids: list[int], offsets: list[tuple[int, int]], begin: int, prompt_ids: list[int], once: bool
    ) -> list[Piece]:
        if once:  # a query
            return super()._frame_tokens(ids, offsets, begin, prompt_ids, once)
        room = self.max_sentence_length - len(self._prefix_ids) - len(self._suffix_ids) - len(prompt_ids)
        overlap = room // 3
        return [
            self._frame_piece(prompt_ids, ids[first : first + room], offsets[first : first + room])
            for first in range(0, max(len(ids) - overlap, 1), room - overlap)
        ]


# How each use of a sentence encoder divides a document: the tokenizer and its options.
PIECES: dict[str, tuple[type[HMDETokenizer], dict[str, Any]]] = {
    "first": (HMDETokenizer, {"segmentation": "chunks", "max_sentences": 1, "max_sentence_length": 512}),
    "windows": (WindowTokenizer, {"segmentation": "chunks", "max_sentences": 32, "max_sentence_length": 128}),
    "sentences": (HMDETokenizer, {"segmentation": "sentences", "max_sentences": 32, "max_sentence_length": 128}),
}


def check_systems(systems: dict[str, SystemRecipe]) -> None:
    """Finds what is wrong with some systems before any of them computes.

    Raises:
        ValueError: there is none; a name cannot name a file; a model cannot be found or is not what its kind says; a
            pooling is missing; or an HMDE is given what it knows itself.
    """
    if not systems:
        raise ValueError("systems is empty; name at least one")
    for name, system in systems.items():
        if not re.fullmatch(r"[\w.-]+", name):
            raise ValueError(f"system {name!r} names files; use letters, digits, '.', '-' and '_' only")
        if system.kind != "hmde" and system.pooling is None:
            raise ValueError(f"system {name} has no pooling; say how its encoder was trained: cls, mean or pooler")
        given = (system.pooling, system.query_prompt, system.document_prompt, system.max_length)
        if system.kind == "hmde" and any(given):
            raise ValueError(
                f"system {name} is an HMDE, whose folder says its pooling, prompts and max_length; leave them out, or "
                "choose another kind"
            )
        model_type = model_type_of(name, system.model)
        if (system.kind == "hmde") != (model_type == "hmde"):
            raise ValueError(
                f"system {name} is of kind {system.kind}, but {system.model} holds a model of type {model_type}; the "
                "kind is hmde for an HMDE and only then"
            )


def model_type_of(name: str, model: str) -> str:
    """The type of a saved model, such as hmde or bert.

    Raises:
        ValueError: there is no such model.
    """
    try:
        return AutoConfig.from_pretrained(model).model_type
    except (OSError, ValueError) as error:
        raise ValueError(f"{name}: {model} is no model folder and no name on the Hub that opens: {error}") from error


def load_system(recipe: SystemRecipe, dtype: Dtype = "float32") -> HMDESystem:
    """A system ready to encode, on a GPU if there is one.

    Args:
        recipe: one that `check_systems` let pass.
        dtype: of weights and activations. Vectors are float32 in any case.
    """
    if recipe.kind == "hmde":
        tokenizer = HMDETokenizer.from_pretrained(recipe.model)
        model = HMDEForDocumentEmbedding.from_pretrained(recipe.model, dtype=dtype)
    else:
        tokenizer_class, pieces = PIECES[recipe.kind]
        if recipe.max_length is not None:
            pieces = pieces | {"max_sentence_length": recipe.max_length}
        tokenizer = tokenizer_class.from_sentence_encoder(
            recipe.model, sentence_prompt=recipe.document_prompt, query_prompt=recipe.query_prompt, **pieces
        )
        model = HMDEForDocumentEmbedding.from_sentence_encoder(
            recipe.model,
            dtype=dtype,
            sentence_pooling=recipe.pooling,
            max_sentence_length=pieces["max_sentence_length"],
            document_norm="pre",
            # The smallest document encoder there is: as the identity, it adds nothing but time.
            num_document_layers=1,
            num_document_attention_heads=1,
            document_intermediate_size=1,
        )
    model.to(device())  # type: ignore[arg-type]
    return HMDESystem(model, tokenizer, show_progress_bar=sys.stderr.isatty())


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _to_unit_length(vectors: np.ndarray) -> np.ndarray:
    """In float32, whatever the dtype of the model.

    Raises:
        ValueError: a vector is not finite.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise ValueError(f"the vector of text {np.isfinite(lengths).argmin()} is not finite; try dtype float32")
    return vectors / lengths
