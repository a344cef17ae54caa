"""What the rows and the vectors of a batch are."""

from __future__ import annotations

from typing import Literal, NamedTuple

EncoderPath = Literal["sentence_encoder", "document_encoder"]


class Kind(NamedTuple):
    """What a row is and what encodes it.

    Args:
        text: documents of all roles, or queries.
        path: through both encoders, as a document, or through the sentence encoder alone.
    """

    text: Literal["documents", "queries"]
    path: EncoderPath


DOCUMENTS = Kind("documents", "document_encoder")
QUERIES = Kind("queries", "sentence_encoder")
