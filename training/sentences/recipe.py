"""The options of training on pairs of sentences. Each loss keeps its own options beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from common.numbers import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from training.loop.options import LoopOptions

SentencePooling = Literal["cls", "mean"]


@dataclass(kw_only=True)
class PairsOptions(LoopOptions):
    """What every training on pairs of sentences is told."""

    corpus: str
    """Folder of parallel text: `pairs/<one>-<other>.parquet`, see training/sentences/pairs.py."""

    max_length: PositiveInt = 128
    """Tokens of a row at most, with its special tokens. A longer one is cut."""

    language_exponent: NonNegativeFloat = 0.7
    """A pair of languages with n pairs of sentences is drawn with a chance in proportion to n to this power. The
    default is InfoXLM's."""

    adam_beta2: Share = 0.999
    """Second beta of AdamW (InfoXLM: 0.98)."""

    adam_epsilon: PositiveFloat = 1e-8
    """Epsilon of AdamW (InfoXLM: 1e-6)."""

    eval_pairs: PositiveInt = 1000
    """Dev pairs of each pair of languages, at most, in which translations are sought."""


@dataclass(kw_only=True)
class SentenceEncoderOptions(PairsOptions):
    """How the encoder starts, and how the vector of a sentence is read from it."""

    architecture: dict[str, Any] = field(default_factory=dict)
    """Fields of the encoder's configuration that differ from the start's; of a new encoder, its `model_type` too."""

    layers: list[int] | None = None
    """Which layers of the encoder to start from are kept, counted from 0; all if not given."""

    freeze: Literal["nothing", "word_embeddings"] = "nothing"
    """What is not trained. Frozen word_embeddings spare their large gradient."""

    prompt: str = ""
    """Text put before every sentence that is to become a vector (E5: `query: `)."""

    pooling: SentencePooling = "mean"
    """The vector of a sentence: the hidden state of its first token (cls, InfoXLM), or the mean over its tokens."""

    sentence_layer: PositiveInt | None = None
    """The layer, counted from 1, whose hidden states become the vector (the universal layer of InfoXLM, 8 of 12); the
    last if not given."""
