"""The model of an index, and the probe that tells whether another model computes the same vectors."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hmde.common.device import Dtype, dtype_of
from hmde.common.saved_models import load_hmde
from hmde.documents.documents import Document
from hmde.release.released import RELEASED, opened_as
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.attribution_hmde import DocumentSentences
from modeling_hmde.inference_hmde import Truncation

logger = logging.getLogger(__name__)

# A text whose vector depends on all that decides a document's vector: weights, prompts and sentence segmentation.
PROBE = "The probe is short. Проба коротка.\n探测很短。"

# Two models count as one if the cosine of their probe vectors is at least this: low enough to allow for another dtype
# or another CPU, too high for other weights.
SAME_MODEL_COSINE = 0.999


class Encoder(NamedTuple):
    """A model, its tokenizer, and the folder or name from which they were loaded, RELEASED for the released model.

    With `truncation="error"`, a document that is longer than the model reads is a ValueError that names it; else its
    beginning is encoded.
    """

    name: str
    model: HMDEForDocumentEmbedding
    tokenizer: HMDETokenizer
    truncation: Truncation = True

    @classmethod
    def load(cls, name: str | None = None, dtype: Dtype = "auto", truncation: Truncation = True) -> Encoder:
        """Loads a saved HMDE.

        Args:
            name: folder or Hub name; the released model if not given, which is put together on first use.
            dtype: of weights and activations.
            truncation: see the description of this class.

        Raises:
            ValueError: there is no such model.
        """
        name = name or RELEASED
        model, tokenizer = load_hmde(opened_as(name), dtype_of(dtype))
        return cls(str(Path(name).resolve()) if Path(name).is_dir() else name, model, tokenizer, truncation)

    @property
    def sentence_size(self) -> int:
        """Size of the sentence vectors of an index: the smallest to which the model's vectors may be cut."""
        config = self.model.config
        return min([config.hidden_size, *config.truncate_dims])

    def encode(self, documents: Sequence[Document]) -> np.ndarray:
        """(documents, hidden), float32, L2-normalised."""
        return self._encode(documents, False)

    def encode_with_sentences(self, documents: Sequence[Document]) -> tuple[np.ndarray, list[DocumentSentences]]:
        """The same, and the sentences of each document with vectors of hidden size, L2-normalised."""
        return self._encode(documents, True)

    def _encode(self, documents: Sequence[Document], sentences: bool) -> Any:
        texts, languages = _texts_and_languages(documents)
        options: dict[str, Any] = {"language": languages, "sentences": sentences, "truncation": self.truncation}
        try:
            return self.model.encode_documents(texts, self.tokenizer, **options)
        except ValueError as error:  # names a text by its place among those that are encoded together
            raise ValueError(re.sub(r"^text (\d+)", lambda text: documents[int(text[1])].id, str(error))) from None

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        """(queries, hidden), float32, L2-normalised."""
        return self.model.encode_queries(queries, self.tokenizer)

    def encode_sentences(self, documents: Sequence[Document]) -> list[DocumentSentences]:
        """The sentences of each document and their vectors; see `HMDEForDocumentEmbedding.prepare_sentences`."""
        texts, languages = _texts_and_languages(documents)
        return self.model.prepare_sentences(texts, self.tokenizer, language=languages)

    def name_truncated(self, documents: Sequence[Document]) -> int:
        """Warns of each document whose end the model does not read, with the share that it reads; how many they are."""
        sentence_bytes = max(self.tokenizer.min_sentence_bytes, 1)  # at least; a shorter text is read to its end
        most = self.tokenizer.max_sentences * sentence_bytes
        long = [document for document in documents if len(document.text.encode()) > most]
        if not long:
            return 0
        texts, languages = _texts_and_languages(long)
        rows = self.tokenizer(texts, language=languages, return_truncated=True, return_offsets_mapping=True)
        truncated = [*compress(zip(long, rows["offset_mapping"]), rows["num_truncated_tokens"])]
        for document, offsets in truncated:
            share = f"{max(end for _, end in offsets) / len(document.text):.1%}"
            logger.warning("%s: only the first %s of it is read; divide it to read all", document.id, share)
        return len(truncated)

    def probe(self) -> np.ndarray:
        """(2 * hidden + 3,), the vectors of PROBE and of its first sentence, of length 1 together, and the limits that
        decide which sentences of a document are read."""
        (vector,), (sentences,) = self.model.encode_documents([PROBE], self.tokenizer, sentences=True)
        tokenizer = self.tokenizer
        limits = [tokenizer.max_sentences, tokenizer.max_sentence_length, tokenizer.min_sentence_bytes]
        return np.concatenate([np.append(vector, sentences.vectors[0]) / 2**0.5, limits])

    def matches(self, probe: np.ndarray) -> bool:
        """Whether the model that gave this probe computes the same vectors as this one."""
        own = self.probe()
        same_limits = own.shape == probe.shape and np.array_equal(own[-3:], probe[-3:])
        return same_limits and bool(own[:-3] @ probe[:-3] >= SAME_MODEL_COSINE)


def sentence_of_probe(probe: np.ndarray) -> np.ndarray:
    """(hidden,), float32, L2-normalised: the vector of the first sentence of PROBE, which `Encoder.probe` gave."""
    vectors = probe[:-3].astype(np.float32).reshape(2, -1)
    return vectors[1] * np.float32(2**0.5)


def cut(vectors: np.ndarray, size: int) -> np.ndarray:
    """(..., hidden) -> (..., size), L2-normalised: the first numbers of each vector."""
    vectors = vectors[..., :size]
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.finfo(np.float32).tiny)


def _texts_and_languages(documents: Sequence[Document]) -> tuple[list[str], list[str | None]]:
    return [document.text for document in documents], [document.language for document in documents]
