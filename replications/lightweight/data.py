"""The lightweight encoder's batches: sentences, one of each pair with a masked word, and the words to predict."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from replications.lightweight.losses import GenerativeTask
from replications.masked_lm import maskable
from replications.sentences.batches import Rows, SentenceCollator
from replications.sentences.pairs import Pair


class GenerativeCollator(SentenceCollator):
    """Adds to `sentences` what their vectors are to predict: `target_ids` (rows, targets) and `target_shares`, the same
    shape, which add up to 1.

    Args:
        task: which words.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        prompt: str = "",
        teacher_tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        task: GenerativeTask,
    ) -> None:
        super().__init__(tokenizer, max_length, prompt, teacher_tokenizer)
        self.task = task
        pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        self.is_word = [any(character.isalnum() for character in piece) for piece in pieces]

    def rows(self, pairs: Sequence[Pair]) -> dict[str, Rows]:
        rows = maskable(self, self.sides(pairs))
        special_tokens = rows.pop("special_tokens_mask")
        words = [
            ids[(mask == 1) & (special == 0)].tolist()
            for ids, mask, special in zip(rows["input_ids"], rows["attention_mask"], special_tokens)
        ]
        targets = [(torch.empty(0), torch.empty(0))] * (2 * len(pairs))
        for index, pair in enumerate(pairs):
            draw = random.Random(pair.seed)
            masked, other = draw.sample([index, index + len(pairs)], 2)
            row = rows["input_ids"][masked], special_tokens[masked]
            masked_word = None if self.task == "xtr" else self._mask_word(*row, draw)
            targets[masked], targets[other] = word_targets(self.task, words[masked], words[other], masked_word)
        target_ids, target_shares = (pad_sequence(list(parts), batch_first=True) for parts in zip(*targets))
        return {"sentences": rows | {"target_ids": target_ids, "target_shares": target_shares}}

    def _mask_word(self, row: Tensor, special_tokens: Tensor, draw: random.Random) -> int | None:
        """Mask a word of a row (tokens,), drawn by lot. Returns its id; None where the row has no word."""
        columns = (special_tokens == 0).nonzero().flatten().tolist()
        candidates = [column for column in columns if self.is_word[int(row[column])]] or columns
        if not candidates:
            return None
        column = draw.choice(candidates)
        word = int(row[column])
        row[column] = self.tokenizer.mask_token_id
        return word


def word_targets(
    task: GenerativeTask, masked: list[int], other: list[int], masked_word: int | None
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The distribution of words that each sentence of a pair is to predict (equations 1, 3 and 4).

    xtr: each predicts the words of the other. smlm: both predict the masked word. ugt: the sentence in which a word is
    masked predicts that word and the words of its translation, half and half; the translation predicts the words of
    that sentence.

    A word counts as often as it occurs, as equation 3 has it, so that shares add up to 1. The authors' code counts each
    word once and then divides by the length all the same; it also predicts the mask token where this predicts the word
    below it.

    Args:
        masked: ids of the sentence in which a word is masked, before the masking.
        other: ids of its translation.
        masked_word: None where nothing is masked.

    Returns:
        ids (targets,) and shares (targets,), of the sentence `masked` and of `other`.
    """
    hidden = [] if masked_word is None else [masked_word]
    masked_targets, other_targets = {
        "xtr": ([other], [masked]),
        "smlm": ([hidden], [hidden]),
        "ugt": ([hidden, other], [masked]),
    }[task]
    return _mixture(masked_targets), _mixture(other_targets)


def _mixture(parts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """The words of some sentences, each sentence with the same share, unless it is empty."""
    parts = [words for words in parts if words]
    shares = [torch.full((len(words),), 1 / (len(words) * len(parts))) for words in parts]
    ids = [torch.tensor(words) for words in parts]
    return torch.cat([torch.empty(0, dtype=torch.long), *ids]), torch.cat([torch.empty(0), *shares])
