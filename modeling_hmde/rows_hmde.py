"""A document as a row of tokens: its sentences, how they are joined, and what transformers asks about a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Tokens(NamedTuple):
    """The tokens of a sentence: of each its id, its word and its first and last character."""

    ids: list[int]
    words: list[int | None]
    offsets: list[tuple[int, int]]
    num_prompt: int = 0  # at the beginning, made of a prompt alone

    def behind(self, first: int, num_characters: int) -> Tokens:
        """The tokens from `first` on, as if the text began so many characters later, behind a prompt."""
        words, offsets = self.words[first:], self.offsets[first:]
        before = next((word for word in words if word is not None), 0)
        return Tokens(
            self.ids[first:],
            [None if word is None else word - before for word in words],
            [(max(0, begin - num_characters), max(0, end - num_characters)) for begin, end in offsets],
            num_prompt=sum(end <= num_characters for _, end in offsets),
        )


@dataclass
class Piece:
    """The tokens of one sentence, special tokens included, or of several sentences end to end."""

    input_ids: list[int]
    offsets: list[tuple[int, int]]  # characters in the document; (0, 0) for tokens that stand for no text
    special: list[int]  # 1 for a special token
    words: list[int | None]  # index of the token's word in the row
    num_text_tokens: int  # without special tokens and those of the prompt
    num_sentences: int = 1
    num_cut_tokens: int = 0  # that a sentence lost at its end
    sentence_ids: list[int] = field(init=False)  # index of the token's sentence in the row

    def __post_init__(self) -> None:
        self.sentence_ids = [0] * len(self.input_ids)

    def extend(self, other: Piece) -> None:
        self.sentence_ids += [self.num_sentences + sentence for sentence in other.sentence_ids]
        self.input_ids += other.input_ids
        self.offsets += other.offsets
        self.special += other.special
        last_word = next((word for word in reversed(self.words) if word is not None), -1)
        self.words += [None if word is None else last_word + 1 + word for word in other.words]
        self.num_text_tokens += other.num_text_tokens
        self.num_sentences += other.num_sentences

    def shortened(self, num_tokens: int, num_suffix: int) -> Piece:
        """The piece cut to `num_tokens`; its last `num_suffix` tokens, the end tokens, stay."""
        kept = [*range(num_tokens - num_suffix), *range(len(self.input_ids) - num_suffix, len(self.input_ids))]
        lists: Any = (self.input_ids, self.offsets, self.special, self.words)
        ids, offsets, special, words = ([values[index] for index in kept] for values in lists)
        return Piece(ids, offsets, special, words, max(0, self.num_text_tokens - len(self.input_ids) + num_tokens))


@dataclass
class RowEncoding:
    """What `BatchEncoding` asks of a row for `tokens()`, `word_ids()`, `char_to_token()` and the like.

    It stands for a `tokenizers.Encoding`, which cannot be joined from those of sentences of one text. Each list has an
    entry for each token of the row. All sentences of a row are sequence 0.
    """

    tokens: Any  # list[str]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]
    sequence_ids: list[int | None]
    n_sequences: int = 1

    def char_to_token(self, char: int, sequence: int = 0) -> int | None:
        return next((index for index, (begin, end) in enumerate(self.offsets) if begin <= char < end), None)

    def token_to_chars(self, token: int) -> tuple[int, int] | None:
        return self.offsets[token] if self.sequence_ids[token] is not None else None

    def token_to_word(self, token: int) -> int | None:
        return self.word_ids[token]

    def token_to_sequence(self, token: int) -> int | None:
        return self.sequence_ids[token]

    def word_to_tokens(self, word: int, sequence: int = 0) -> tuple[int, int] | None:
        indices = [index for index, other in enumerate(self.word_ids) if other == word]
        return (indices[0], indices[-1] + 1) if indices else None

    def word_to_chars(self, word: int, sequence: int = 0) -> tuple[int, int] | None:
        tokens = self.word_to_tokens(word)
        return (self.offsets[tokens[0]][0], self.offsets[tokens[1] - 1][1]) if tokens else None

    def char_to_word(self, char: int, sequence: int = 0) -> int | None:
        token = self.char_to_token(char)
        return None if token is None else self.word_ids[token]


def common_start(ids: list[int], others: list[int]) -> int:
    """How many ids at the beginning are the same."""
    return next(
        (place for place, (one, other) in enumerate(zip(ids, others)) if one != other), min(len(ids), len(others))
    )


def join_pieces(pieces: list[Piece], limit: int | None, num_special: tuple[int, int]) -> Piece:
    """The sentences of a document as one row of at most `limit` tokens. Where the last one is cut, its end tokens stay.

    Args:
        num_special: special tokens before and after the text of a sentence.
    """
    row = Piece([], [], [], [], num_text_tokens=0, num_sentences=0)
    for piece in pieces:
        room = len(piece.input_ids) if limit is None else limit - len(row.input_ids)
        if room >= len(piece.input_ids):
            row.extend(piece)
            continue
        if room > sum(num_special):  # there is room for some text
            row.extend(piece.shortened(room, num_special[1]))
        break
    return row
