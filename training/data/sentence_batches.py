"""Pairs of sentences to the rows that each objective reads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerBase

from training.data.batches import integer_of
from training.data.parallel import Example
from training.recipes import COMPARING, WORD_OBJECTIVES, PretrainSentencesRecipe

Rows = dict[str, Tensor]  # input_ids and attention_mask (rows, tokens), and what else an objective needs

IGNORED = -100  # the label of a token that is not to be predicted


class SentenceBatch(NamedTuple):
    """Pairs ready for the encoder.

    Args:
        rows: by name, as far as there is an objective for them:
            mmlm, tlm: one row a pair, with `labels` (rows, tokens), the masked tokens, elsewhere -100.
            sentences: the first sentences, then the second; where words are predicted from their vectors, with
                `target_ids` (rows, targets) and `target_shares`, the same shape, which add up to 1. Where they are
                translated, with `target_tokens` (rows, tokens), the whole translation, after it -100, and
                `target_language` (rows,), its place among the pivots; a row of -100 is not translated. If all that is
                done with them is to translate, those alone that are.
            queries: one side of each pair, for xlco.
        key_rows: `keys`, the other side.
        teacher_rows: `sentences`, the first sentences, as the teacher reads them.
        concepts: (pairs,), int64, the same for pairs whose sentences are.
        languages: (2, pairs), int64, of the first sentences and of the second.
        names: (pairs,), for messages.
    """

    rows: dict[str, Rows]
    key_rows: dict[str, Rows]
    teacher_rows: dict[str, Rows]
    concepts: Tensor
    languages: Tensor
    names: list[str]

    @property
    def num_predicted(self) -> dict[str, Tensor]:
        """How many tokens are to be predicted, by objective, ()."""
        counts = {name: (rows["labels"] != IGNORED).sum() for name, rows in self.rows.items() if "labels" in rows}
        if "target_tokens" in self.rows.get("sentences", {}):  # whose first token is given
            counts["translation"] = (self.rows["sentences"]["target_tokens"][:, 1:] != IGNORED).sum()
        return counts


class SentenceCollator:
    """From some pairs to their batch. All that is drawn follows from the seed of each pair.

    Args:
        teacher_tokenizer: if there is a teacher.

    Raises:
        ValueError: an objective masks words, and the tokenizer has no mask token.
    """

    def __init__(
        self,
        recipe: PretrainSentencesRecipe,
        tokenizer: PreTrainedTokenizerBase,
        teacher_tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> None:
        masking = sorted({"mmlm", "tlm", "ugt", "smlm"} & recipe.objectives.keys())
        if masking and tokenizer.mask_token is None:
            raise ValueError(
                f"the tokenizer of {recipe.sentence_encoder} has no mask token, which {', '.join(masking)} needs; give "
                'it one (tokenizer.add_special_tokens({"mask_token": "<mask>"}), then '
                "model.resize_token_embeddings(len(tokenizer)), and save both), or leave these objectives out"
            )
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.teacher_tokenizer = teacher_tokenizer
        self.masking = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15) if masking else None
        self.word_objective = next(iter(WORD_OBJECTIVES & recipe.objectives.keys()), None)
        pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))) if self.word_objective else []
        self.is_word = [any(character.isalnum() for character in piece) for piece in pieces]

    def __call__(self, pairs: Sequence[Example]) -> SentenceBatch:
        objectives, prompt = self.recipe.objectives, self.recipe.prompt
        seeds = [pair.seed for pair in pairs]
        first, second = [prompt + pair.first for pair in pairs], [prompt + pair.second for pair in pairs]
        rows: dict[str, Rows] = {}
        key_rows: dict[str, Rows] = {}
        teacher_rows: dict[str, Rows] = {}
        if "mmlm" in objectives:
            rows["mmlm"] = self._masked(self._tokenized([pair.text for pair in pairs]), seeds)
        if "tlm" in objectives:  # positions go on, as XLM-R has it; XLM starts them anew in the second sentence
            together = self._tokenized([pair.first for pair in pairs], [pair.second for pair in pairs])
            rows["tlm"] = self._masked(together, [seed + 1 for seed in seeds])
        sides = first + second
        if {*COMPARING, *WORD_OBJECTIVES} & objectives.keys():
            rows["sentences"] = self._tokenized(sides)
            if self.word_objective:
                rows["sentences"] = self._with_targets(rows["sentences"], seeds)
            if "translation" in objectives:
                translated, targets = self._translations(pairs)
                rows["sentences"] |= {key: _among(len(sides), translated, target) for key, target in targets.items()}
            del rows["sentences"]["special_tokens_mask"]
        elif "translation" in objectives:
            translated, targets = self._translations(pairs)
            rows["sentences"] = self._tokenized([sides[row] for row in translated]) | targets
            del rows["sentences"]["special_tokens_mask"]
        if "xlco" in objectives:
            queries, keys = zip(*(joined(pair, prompt) for pair in pairs))
            for name, joined_sides, where in (("queries", queries, rows), ("keys", keys, key_rows)):
                where[name] = self._tokenized(*map(list, zip(*joined_sides)))
                del where[name]["special_tokens_mask"]
        if self.teacher_tokenizer is not None:
            teacher_rows["sentences"] = tokenized(self.teacher_tokenizer, self.recipe.max_length, first)
            del teacher_rows["sentences"]["special_tokens_mask"]
        concepts = torch.tensor([integer_of(" ".join((pair.id, *(pair.mixed or ())))) for pair in pairs])
        languages = torch.tensor([[integer_of(language) for language in pair.languages] for pair in pairs]).T
        return SentenceBatch(rows, key_rows, teacher_rows, concepts, languages, [pair.name for pair in pairs])

    def _tokenized(self, *texts: list[str]) -> Rows:
        return tokenized(self.tokenizer, self.recipe.max_length, *texts)

    def _masked(self, rows: Rows, seeds: list[int]) -> Rows:
        """15 % of the tokens as BERT masks them, each row by a seed of its own."""
        assert self.masking is not None
        special = rows.pop("special_tokens_mask")
        labels = torch.empty_like(rows["input_ids"])
        for row, seed in enumerate(seeds):
            length = int(rows["attention_mask"][row].sum())  # so that a row's draws do not depend on its padding
            self.masking.generator = torch.Generator().manual_seed(seed)
            one = (slice(row, row + 1), slice(length))
            rows["input_ids"][one], labels[one] = self.masking.torch_mask_tokens(
                rows["input_ids"][one].clone(), special_tokens_mask=special[one]
            )
            labels[row, length:] = IGNORED
        return rows | {"labels": labels}

    def _with_targets(self, rows: Rows, seeds: list[int]) -> Rows:
        """What the vectors of both sentences of each pair are to predict; a word of one of the two masked."""
        words = [
            ids[(mask == 1) & (special == 0)].tolist()
            for ids, mask, special in zip(rows["input_ids"], rows["attention_mask"], rows["special_tokens_mask"])
        ]
        num_pairs = len(seeds)
        target_ids: list[Tensor] = [torch.empty(0)] * (2 * num_pairs)
        target_shares = list(target_ids)
        for pair, seed in enumerate(seeds):
            draw = random.Random(seed)
            masked, other = draw.sample([pair, pair + num_pairs], 2)
            masked_word = None
            if self.word_objective != "xtr":
                columns = (rows["special_tokens_mask"][masked] == 0).nonzero().flatten().tolist()
                candidates = [
                    column for column in columns if self.is_word[int(rows["input_ids"][masked, column])]
                ] or columns
                if candidates:
                    column = draw.choice(candidates)
                    masked_word = int(rows["input_ids"][masked, column])
                    rows["input_ids"][masked, column] = self.tokenizer.mask_token_id
            of_masked, of_other = word_targets(self.word_objective, words[masked], words[other], masked_word)
            target_ids[masked], target_shares[masked] = of_masked
            target_ids[other], target_shares[other] = of_other
        return rows | {
            "target_ids": pad_sequence(target_ids, batch_first=True),
            "target_shares": pad_sequence(target_shares, batch_first=True),
        }

    def _translations(self, pairs: Sequence[Example]) -> tuple[list[int], Rows]:
        """Into what one sentence of each pair is translated: the other, if its language is a pivot. Where both can be,
        it is drawn. For an NTDV, both are translated into each other.

        Returns:
            the row of each translated sentence among the first and then the second sentences; its `target_tokens`
            (translated, tokens) and `target_language` (translated,).
        """
        pivots = self.recipe.pivots
        if self.recipe.translators:
            target_sides = [(index, side) for side in (1, 0) for index in range(len(pairs))]
        else:
            target_sides = [
                (index, random.Random(pair.seed).choice([side for side in (0, 1) if pair.languages[side] in pivots]))
                for index, pair in enumerate(pairs)
            ]
        translated = [index + (1 - side) * len(pairs) for index, side in target_sides]
        texts = [(pairs[index].first, pairs[index].second)[side] for index, side in target_sides]
        languages = [pivots.index(pairs[index].languages[side]) for index, side in target_sides]
        rows = self._tokenized(texts)
        tokens = rows["input_ids"].masked_fill(rows["attention_mask"] == 0, IGNORED)
        return translated, {"target_tokens": tokens, "target_language": torch.tensor(languages)}


def _among(num_rows: int, places: list[int], rows: Tensor) -> Tensor:
    """(rows, ...) -> (num_rows, ...), at their places among rows of -100."""
    return rows.new_full((num_rows, *rows.shape[1:]), IGNORED).index_copy(0, torch.tensor(places), rows)


def tokenized(tokenizer: PreTrainedTokenizerBase, max_length: int, *texts: list[str]) -> Rows:
    """One list of texts, or two, of which each row has one of each. With `special_tokens_mask`, 1 in padding too."""
    rows = tokenizer(
        *texts,
        truncation="longest_first",
        max_length=max_length,
        padding=True,
        padding_side="right",
        return_token_type_ids=False,
        return_special_tokens_mask=True,
        return_tensors="pt",
    )
    return {
        "input_ids": rows["input_ids"],
        "attention_mask": rows["attention_mask"],
        "special_tokens_mask": rows["special_tokens_mask"] | (1 - rows["attention_mask"]),
    }


def word_targets(
    objective: str | None, masked: list[int], other: list[int], masked_word: int | None
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The distribution of words that each sentence of a pair is to predict (Mao et al., 2021, equations 1, 3 and 4).

    xtr: that of its translation. smlm: the masked word. ugt: the masked word and the translation, half and half, from
    the sentence in which it is masked, and that sentence, from the translation.

    A word counts as often as it occurs, as equation 3 has it, so that shares add up to 1. The authors' code counts each
    word once and then divides by the length all the same; it also predicts the mask token where this predicts the word
    below it.

    Args:
        masked: ids of the sentence in which a word is masked, before the masking.
        other: of its translation.
        masked_word: None where nothing is masked.

    Returns:
        ids (targets,) and shares (targets,), of the sentence `masked` and of `other`.
    """
    hidden = [] if masked_word is None else [masked_word]
    of_masked, of_other = {
        "xtr": ([other], [masked]),
        "smlm": ([hidden], [hidden]),
        "ugt": ([hidden, other], [masked]),
    }[objective or "xtr"]
    return _mixture(of_masked), _mixture(of_other)


def _mixture(parts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """The words of some sentences, each sentence with the same share, unless it is empty."""
    parts = [words for words in parts if words]
    shares = [torch.full((len(words),), 1 / (len(words) * len(parts))) for words in parts]
    ids = [torch.tensor(words) for words in parts]
    return torch.cat([torch.empty(0, dtype=torch.long), *ids]), torch.cat([torch.empty(0), *shares])


def joined(pair: Example, prompt: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The two sides of a pair for xlco: which is the query's is drawn, and so is, on each side, whether the sentence of
    the pair mixed in comes first or last (InfoXLM, section 3.3).

    Languages stay on their side, as in the authors' code; the paper's example crosses them too. Inputs are not masked,
    as the paper has it; the code masks them.
    """
    draw = random.Random(pair.seed)
    sides = [[pair.first], [pair.second]]
    if pair.mixed is not None:
        sides = [draw.sample([*side, mixed], 2) for side, mixed in zip(sides, pair.mixed)]
    first, second = ((prompt + side[0], *side[1:]) for side in sides)
    return (first, second) if draw.random() < 0.5 else (second, first)
