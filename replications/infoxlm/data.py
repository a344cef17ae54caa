"""InfoXLM's batches: monolingual text, masked rows, and pairs that are mixed with pairs of other languages."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerBase

from hmde.common.fingerprints import digest, fingerprint
from modeling_hmde.segmentation_hmde import replace_surrogates, sentence_spans
from replications.drawn_pairs import DrawnPairs
from replications.infoxlm.losses import InfoXLMLosses
from replications.masked_lm import maskable
from replications.sentences.batches import IGNORED, Rows, SentenceCollator
from replications.sentences.pairs import Pair
from training.data.articles import load_articles, rows_of_split

CHARACTERS_PER_TOKEN = 16  # more than any language has, so that a text is cut before it is tokenized


@dataclass(frozen=True)
class InfoXLMPair(Pair):
    """A pair, with monolingual text to go with it, and the sentences of the pair that it is mixed with, if any."""

    text: str = ""
    mixed: tuple[str, str] | None = None

    @property
    def concept(self) -> str:
        return " ".join((self.id, *(self.mixed or ())))


class InfoXLMPairs(DrawnPairs):
    """
    Args:
        mixup: draw a pair of other languages for each. Where there is only one pair of languages, a pair of these.
        texts: what monolingual text is drawn from; a side of the pair if not given.
    """

    def __init__(
        self, folder: str | Path, split: str, *, mixup: bool = False, texts: Texts | None = None, seed: int = 0
    ) -> None:
        super().__init__(folder, split, seed=seed)
        self.mixup = mixup
        self.texts = texts

    @cached_property
    def fingerprint(self) -> str:
        if self.texts is None:
            return super().fingerprint
        articles = sorted((self.texts.folder / "articles").glob("*.parquet"))
        return fingerprint(super().fingerprint, *((path.name, digest(path)) for path in articles))

    def __getitem__(self, index: int) -> InfoXLMPair:
        draw = self.draws(index)
        mixed = self.pairs[self._index_of_other_languages(index, draw)] if self.mixup else None
        row = self.pairs[index]
        text = draw.choice([row["first"], row["second"]]) if self.texts is None else self.texts.draw(draw)
        pair = self.pair(index, draw)
        return InfoXLMPair(**vars(pair), text=text, mixed=(mixed["first"], mixed["second"]) if mixed else None)

    def _index_of_other_languages(self, index: int, draw: random.Random) -> int:
        if len(self.languages) == 1:
            return draw.randrange(len(self))
        table = self.table_index(index)
        end = int(self.ends[table])
        first = end - int(np.diff(self.ends, prepend=0)[table])
        other = draw.randrange(len(self) - (end - first))
        return other if other < first else other + end - first


class Texts:
    """Passages of the training articles of a corpus.

    Args:
        folder: of `python -m training.corpus`.
        language_exponent: a language with n articles is drawn with a chance in proportion to n to this power.
        max_length: tokens of a row. A passage is cut to CHARACTERS_PER_TOKEN times as many characters.

    Raises:
        ValueError: the corpus has no training article.
    """

    def __init__(self, folder: str | Path, language_exponent: float, max_length: int) -> None:
        self.folder = Path(folder)
        articles = {language: rows_of_split(table, "train") for language, table in load_articles(self.folder).items()}
        self.articles = {language: table for language, table in articles.items() if len(table)}
        if not self.articles:
            raise ValueError(f"{folder} has no article of split 'train'; make a corpus with python -m training.corpus")
        self.chances = [len(table) ** language_exponent for table in self.articles.values()]
        self.max_characters = CHARACTERS_PER_TOKEN * max_length

    def draw(self, draw: random.Random) -> str:
        """From the start of one of the sentences of an article."""
        (language,) = draw.choices(list(self.articles), self.chances)
        article = self.articles[language][draw.randrange(len(self.articles[language]))]
        text = replace_surrogates(article["text"])
        begin, _ = draw.choice(list(sentence_spans(text, language)))
        return text[begin : begin + self.max_characters]


class InfoXLMCollator(SentenceCollator):
    """
    Args:
        losses: for which there are rows: `mmlm` and `tlm`, one row a pair, with `labels` (rows, tokens), the masked
            tokens, elsewhere -100; `queries`, one side of each pair, and the other side in `other_rows`, as `keys`.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, max_length: int, prompt: str = "", *, losses: InfoXLMLosses
    ) -> None:
        super().__init__(tokenizer, max_length, prompt)
        self.losses = losses
        masks = losses.mmlm or losses.tlm
        self.masking = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15) if masks else None

    def rows(self, pairs: Sequence[Pair]) -> dict[str, Rows]:
        rows: dict[str, Rows] = {}
        if self.losses.mmlm is not None:
            texts = [pair.text if isinstance(pair, InfoXLMPair) else drawn_side(pair) for pair in pairs]
            rows["mmlm"] = self._masked(maskable(self, texts), [pair.seed for pair in pairs])
        if self.losses.tlm is not None:  # positions go on, as XLM-R has it; XLM starts them anew in the second sentence
            together = maskable(self, [pair.first for pair in pairs], [pair.second for pair in pairs])
            rows["tlm"] = self._masked(together, [pair.seed + 1 for pair in pairs])
        if self.losses.xlco is not None:
            rows["queries"] = self._joined(pairs, side=0)
        return rows

    def other_rows(self, pairs: Sequence[Pair]) -> dict[str, Rows]:
        return {} if self.losses.xlco is None else {"keys": self._joined(pairs, side=1)}

    def _joined(self, pairs: Sequence[Pair], side: int) -> Rows:
        """The queries (side 0) or the keys (1) of cross-lingual contrast."""
        texts = [joined(pair, self.prompt)[side] for pair in pairs]
        return self.tokenized(*map(list, zip(*texts)))

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


def drawn_side(pair: Pair) -> str:
    """One of a pair's two sentences, which the pair's seed chooses."""
    return random.Random(pair.seed).choice((pair.first, pair.second))


def joined(pair: Pair, prompt: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The two sides of a pair for xlco: which is the query's is drawn, and so is, on each side, whether the sentence of
    the pair mixed in comes first or last (section 3.3).

    Languages stay on their side, as in the authors' code; the paper's example crosses them too. Inputs are not masked,
    as in the paper; the code masks them.
    """
    draw = random.Random(pair.seed)
    sides = [[pair.first], [pair.second]]
    if isinstance(pair, InfoXLMPair) and pair.mixed is not None:
        sides = [draw.sample([*side, mixed], 2) for side, mixed in zip(sides, pair.mixed)]
    first, second = ((prompt + side[0], *side[1:]) for side in sides)
    return (first, second) if draw.random() < 0.5 else (second, first)
