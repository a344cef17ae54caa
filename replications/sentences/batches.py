"""Pairs of sentences to the rows that the losses read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from replications.sentences.pairs import Pair
from training.data.batches import integer_of

Rows = dict[str, Tensor]  # input_ids and attention_mask (rows, tokens), and what else a loss needs

IGNORED = -100  # the label of a token that is not to be predicted


class SentenceBatch(NamedTuple):
    """Pairs ready for the encoder.

    Args:
        rows: by name: `sentences`, the first sentences, then the second; and what else a loss reads.
        other_rows: what other encoders embed, by name: `teacher`, the first sentences as the teacher reads them.
        concepts: (pairs,), int64, the same for pairs whose sentences are.
        languages: (2, pairs), int64, those of the first sentences and of the second.
        names: (pairs,), for messages.
    """

    rows: dict[str, Rows]
    other_rows: dict[str, Rows]
    concepts: Tensor
    languages: Tensor
    names: list[str]


class SentenceCollator:
    """From some pairs to their batch. All that is drawn follows from the seed of each pair.

    Args:
        tokenizer: the encoder's.
        max_length: tokens of a row at most.
        prompt: text put before every sentence that is to become a vector.
        teacher_tokenizer: the teacher's, if there is one.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        prompt: str = "",
        teacher_tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.prompt = prompt
        self.teacher_tokenizer = teacher_tokenizer

    def __call__(self, pairs: Sequence[Pair]) -> SentenceBatch:
        return SentenceBatch(
            rows=self.rows(pairs),
            other_rows=self.other_rows(pairs),
            concepts=torch.tensor([integer_of(pair.id) for pair in pairs]),
            languages=torch.tensor([[integer_of(language) for language in pair.languages] for pair in pairs]).T,
            names=[pair.name for pair in pairs],
        )

    def rows(self, pairs: Sequence[Pair]) -> dict[str, Rows]:
        """What the encoder embeds, by name."""
        return {"sentences": self.tokenized(self.sides(pairs))}

    def other_rows(self, pairs: Sequence[Pair]) -> dict[str, Rows]:
        """What other encoders embed, by name."""
        if self.teacher_tokenizer is None:
            return {}
        return {"teacher": tokenized(self.teacher_tokenizer, self.max_length, self.sides(pairs)[: len(pairs)])}

    def sides(self, pairs: Sequence[Pair]) -> list[str]:
        """The first sentences, then the second, behind the prompt."""
        return [self.prompt + pair.first for pair in pairs] + [self.prompt + pair.second for pair in pairs]

    def tokenized(self, texts: list[str]) -> Rows:
        """A row for each text."""
        return tokenized(self.tokenizer, self.max_length, texts)


def tokenized(tokenizer: PreTrainedTokenizerBase, max_length: int, texts: list[str]) -> Rows:
    rows = tokenizer(
        texts,
        truncation=True,
        max_length=max_length,
        padding=True,
        padding_side="right",
        return_token_type_ids=False,
        return_tensors="pt",
    )
    return dict(rows)
