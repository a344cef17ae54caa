"""An HMDE with a smaller vocabulary, for the languages of a corpus.

    python -m release_tools.cut_vocabulary --model runs/hmde-small --corpus runs/corpus --output runs/hmde-cut

The vectors of its tokens are most of a multilingual model. This command keeps all single characters, so that no text
loses anything: a word whose token is cut is read in smaller pieces. The rest of `num_tokens` are tokens that the corpus
uses: those that are frequent in the corpus and, by the tokenizer's own scores, in its languages at large, because the
student will read texts on other subjects too. A text without any of the tokens that are cut gets the same vector as
before.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import common.terminal
import common.threads

import torch
from tokenizers import Tokenizer

from common.command_line import options_from, run
from common.files import check_is_new, folder_written_whole
from common.numbers import PositiveInt
from common.progress import progress_bar
from common.saved_models import load_hmde, save_changed
from modeling_hmde import HMDETokenizer
from training.data.articles import load_articles, rows_of_split

TEXTS_AT_ONCE = 256


@dataclass
class CutVocabulary:
    """Write an HMDE with the tokens that a corpus uses."""

    model: str
    """Folder or Hub name of the HMDE."""

    corpus: str
    """Output of `python -m training.corpus`."""

    output: str
    """Folder to write."""

    num_tokens: PositiveInt = 60_000
    """How many tokens to keep. Fewer are kept if the corpus uses fewer."""


def main(argv: list[str] | None = None) -> None:
    """
    Raises:
        ValueError: there is no such HMDE or corpus, its tokenizer is of another kind than SentencePiece's unigram
            model, it has more single characters than tokens may stay, or the output exists.
    """
    options = options_from(CutVocabulary, argv)
    check_is_new(options.output)
    loaded: Any = load_hmde(options.model, torch.float32)
    model, tokenizer = loaded
    whole, before = json.loads(tokenizer.backend_tokenizer.to_str()), len(tokenizer)
    needed_tokens(whole, options.num_tokens)  # what cannot be cut is refused before the corpus is read
    kept, content = cut(whole, count_tokens(tokenizer, Path(options.corpus)), options.num_tokens)
    words = model.get_input_embeddings().weight.data
    words[: len(kept)] = words[kept]
    model.resize_token_embeddings(len(kept))
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(content))
    with folder_written_whole(options.output) as folder:
        size = f"{len(kept)} of {before} tokens"
        change = f"{size}: single characters and those of a corpus."
        save_changed(model, tokenizer, folder, options.model, options.output, "Vocabulary", change)
    print(f"wrote {options.output}: {size}")


def count_tokens(tokenizer: HMDETokenizer, corpus: Path) -> Counter[int]:
    """How often each token stands in the titles and texts that a corpus has for training, by its id."""
    counts: Counter[int] = Counter()
    for language, table in load_articles(corpus).items():
        articles = rows_of_split(table, "train")
        with progress_bar(language, len(articles)) as progress:
            for rows in articles.iter(TEXTS_AT_ONCE):
                texts = [f"{title}\n{text}" for title, text in zip(rows["title"], rows["text"])]
                counts.update(chain(*tokenizer(texts, add_special_tokens=False)["input_ids"]))
                progress.update(len(texts))
    return counts


def needed_tokens(tokenizer: dict[str, Any], num_tokens: int) -> set[int]:
    """The ids of special tokens and single characters, which always stay. Arguments as in `cut`.

    Raises:
        ValueError: its model is not SentencePiece's unigram model, which reads any word in the pieces that it has, or
            it has more single characters than `num_tokens`.
    """
    if (kind := tokenizer["model"]["type"]) != "Unigram":
        raise ValueError(f"the tokenizer is of the kind {kind}; only the vocabulary of a Unigram tokenizer can be cut")
    vocabulary = tokenizer["model"]["vocab"]
    lowest = min(score for _, score in vocabulary)  # the library computes the score of an unknown character from it
    needed = {token["id"] for token in tokenizer["added_tokens"]} | {
        token for token, (piece, score) in enumerate(vocabulary) if len(piece.removeprefix("▁")) <= 1 or score == lowest
    }
    if len(needed) > num_tokens:
        raise ValueError(
            f"num_tokens is {num_tokens}, but {len(needed)} are single characters and special tokens, which all stay; "
            "allow more"
        )
    return needed


def cut(tokenizer: dict[str, Any], counts: Counter[int], num_tokens: int) -> tuple[list[int], dict[str, Any]]:
    """The ids of the tokens that are kept, in their order, and a tokenizer that has these alone.

    Args:
        tokenizer: the content of tokenizer.json.
        counts: of each id.
        num_tokens: how many to keep.

    Raises:
        ValueError: see `needed_tokens`.
    """
    needed, vocabulary = needed_tokens(tokenizer, num_tokens), tokenizer["model"]["vocab"]
    # The log of its frequency in the corpus and its score, the log of its frequency at large.
    weight = {token: math.log(count) + vocabulary[token][1] for token, count in counts.items() if token not in needed}
    chosen = sorted(weight, key=lambda token: (-weight[token], token))[: num_tokens - len(needed)]
    kept = sorted(needed.union(chosen))
    new = {token: place for place, token in enumerate(kept)}
    model = tokenizer["model"] | {
        "vocab": [vocabulary[token] for token in kept if token < len(vocabulary)],
        "unk_id": new[tokenizer["model"]["unk_id"]],
    }
    tokens = [token | {"id": new[token["id"]]} for token in tokenizer["added_tokens"]]
    return kept, tokenizer | {"model": model, "added_tokens": tokens}


if __name__ == "__main__":
    run(main)
