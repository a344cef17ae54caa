"""What serves as a query for the document of a triple."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from training.data.kinds import EncoderPath

QueryPath = Literal[EncoderPath, "both"]


@dataclass
class QueryDraw:
    """How a query is drawn for each triple, anew in every epoch."""

    source: Literal["title", "sentence", "both"] = "both"
    """What serves as a query: a title, a sentence, or one of the two by chance."""

    language: Literal["anchor", "positive", "both"] = "anchor"
    """Whose title or sentence: the anchor's, to train search across languages; the positive's own, for search within a
    language; or one of the two by chance."""

    path: QueryPath | None = None
    """What encodes a query in training: sentence_encoder or document_encoder, see HMDEConfig; or both, with the mean of
    the two losses. The path that the model takes in use if not given."""
