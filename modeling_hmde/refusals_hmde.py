"""What the tokenizer refuses, and what it warns of: arguments without effect, and texts that lose something."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from transformers.utils import logging

from .rows_hmde import Piece, Row

logger = logging.get_logger(__name__)

# Options of transformers' tokenizers that HMDE's has not, and what to do.
WITHOUT_EFFECT = {
    "is_split_into_words": "give each document as one string",
    "return_overflowing_tokens": "give each document as one string",
    "stride": "use segmentation='windows'",
    "return_token_type_ids": "sentence_ids say which tokens are a sentence",
    "return_special_tokens_mask": "num_special_tokens says how many stand around each sentence",
    "return_length": "take the length of each row",
    "split_special_tokens": "text never becomes a special token",
}


def refuse_arguments(known: Collection[str], text_pair: Any, others: Mapping[str, Any]) -> None:
    """
    Args:
        known: the names of arguments that the tokenizer takes.
        others: arguments of a call.

    Raises:
        ValueError: an argument would have no effect.
    """
    if text_pair is not None:
        raise ValueError("HMDE reads one document at a time; join the texts instead of giving a text_pair")
    for name, value in others.items():
        if name not in known and name != "sanitize_control_tokens":  # which transformers gives the tokens of a chat
            raise ValueError(f"the tokenizer has no option {name}; help(HMDETokenizer) describes those it has")
        if name in WITHOUT_EFFECT and (value is False if name == "split_special_tokens" else value):
            raise ValueError(f"{name}={value} is not supported; {WITHOUT_EFFECT[name]}")


def refuse_truncated(texts: Sequence[str], num_truncated_tokens: Sequence[int], tokenizer: Any) -> None:
    """
    Args:
        num_truncated_tokens: (texts,), what each lost, as a call of the tokenizer with `return_truncated` gives it.

    Raises:
        ValueError: a text lost something. The message names the first, and the limits.
    """
    cut = [index for index, count in enumerate(num_truncated_tokens) if count]
    if cut:
        limits = f"max_sentences {tokenizer.max_sentences}, max_sentence_length {tokenizer.max_sentence_length}"
        others = f", and {len(cut) - 1} more texts are too long" if len(cut) > 1 else ""
        raise ValueError(
            f"text {cut[0]} ({texts[cut[0]][:40]!r}) has {num_truncated_tokens[cut[0]]} tokens more than are read "
            f"({limits}){others}; divide it, raise the limits, or give truncation=True to read its beginning"
        )


def warn_of_truncation(
    pieces: Sequence[Piece], row: Row, max_sentences: int, max_sentence_length: int, limit: int | None
) -> None:
    """Says once what a text lost to each limit, and how to keep more."""
    if len(pieces) > max_sentences:
        logger.warning_once(
            f"A document has more than {max_sentences} sentences; what follows is left out. "
            "Set the tokenizer's max_sentences to keep more. (Said once.)"
        )
    if any(piece.num_cut_tokens for piece in pieces):
        logger.warning_once(
            f"A sentence has more than {max_sentence_length} tokens; the rest of it is left out. "
            "Set the tokenizer's max_sentence_length to keep more. (Said once.)"
        )
    if sum(map(len, pieces[:max_sentences])) > len(row.input_ids):
        logger.warning_once(f"A text has more than max_length={limit} tokens; what follows is left out. (Said once.)")
