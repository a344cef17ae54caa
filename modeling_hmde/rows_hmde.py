"""A document as a row of tokens: its sentences, how they are joined, and what transformers asks about a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple


class Tokens(NamedTuple):
    """The tokens of a sentence. Their words and characters are read when somebody asks for them, which few callers do:
    they take longer than the ids."""

    ids: list[int]
    read: Callable[[], Any] = list  # gives the sentence's tokenizers.Encoding; not called if there is no token
    first: int = 0  # token of the encoding with which `ids` begin, behind those that a prompt alone made
    num_prompt_characters: int = 0  # of the encoding's text
    num_prompt: int = 0  # tokens at the beginning of `ids` that the prompt made too

    def behind(self, first: int, num_characters: int) -> Tokens:
        """The tokens from `first` on, of a text that begins behind a prompt of so many characters."""
        offsets = self.read().offsets[first:]
        num_prompt = sum(end <= num_characters for _, end in offsets)
        return Tokens(self.ids[first:], self.read, first, num_characters, num_prompt)

    def offsets(self) -> list[tuple[int, int]]:
        """Begin and end of each token, in characters of the sentence."""
        before = self.num_prompt_characters
        offsets = self.read().offsets[self.first :] if self.ids else []
        return [(max(0, begin - before), max(0, end - before)) for begin, end in offsets]

    def words(self) -> list[int | None]:
        """The word of each token, counted in the sentence."""
        words = self.read().word_ids[self.first :] if self.ids else []
        before = next((word for word in words if word is not None), 0) if self.num_prompt_characters else 0
        return [None if word is None else word - before for word in words]


@dataclass
class Piece:
    """A sentence, or a part of one that is too long: the ids of its tokens and what is put around them."""

    before: list[int]  # special tokens
    prompt: list[int]
    text: list[int]
    after: list[int]  # special tokens
    tokens: Tokens  # of the sentence
    first: int  # token of the sentence with which `text` begins
    begin: int  # character of the document with which the sentence begins
    num_text_tokens: int  # without those of the prompt
    num_cut_tokens: int = 0  # that a sentence lost at its end

    def __len__(self) -> int:
        return len(self.before) + len(self.prompt) + len(self.text) + len(self.after)

    def around(self, values: list, special: Any, prompt: Any) -> list:
        """Values of the tokens of `text`, and those of the tokens around them."""
        framed = [special] * len(self.before) + [prompt] * len(self.prompt) + values
        return framed + [special] * len(self.after)

    def shortened(self, num_tokens: int) -> Piece:
        """The piece cut to `num_tokens`; its end tokens stay."""
        room = num_tokens - len(self.before) - len(self.after)
        num_text_tokens = max(0, self.num_text_tokens - len(self) + num_tokens)
        prompt, text = self.prompt[:room], self.text[: max(0, room - len(self.prompt))]
        return replace(self, prompt=prompt, text=text, num_text_tokens=num_text_tokens, num_cut_tokens=0)


class Row:
    """A document: the tokens of its sentences end to end.

    Args:
        pieces: its sentences.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        self.input_ids: list[int] = []
        self.sentence_ids: list[int] = []  # index of the token's sentence
        for index, piece in enumerate(pieces):
            self.input_ids += piece.before + piece.prompt + piece.text + piece.after
            self.sentence_ids += [index] * len(piece)

    @property
    def num_text_tokens(self) -> int:
        return sum(piece.num_text_tokens for piece in self.pieces)

    @cached_property
    def offsets(self) -> list[tuple[int, int]]:
        """Characters of the document, (0, 0) for tokens that stand for no text."""
        offsets = []
        for piece in self.pieces:
            of_text = piece.tokens.offsets()[piece.first :][: len(piece.text)]
            places = [(piece.begin + begin, piece.begin + end) for begin, end in of_text]
            offsets += piece.around(places, special=(0, 0), prompt=(0, 0))
        return offsets

    @cached_property
    def special(self) -> list[int]:
        """1 for a special token."""
        return [value for piece in self.pieces for value in piece.around([0] * len(piece.text), special=1, prompt=0)]

    @cached_property
    def words(self) -> list[int | None]:
        """Index of the token's word in the row."""
        words: list[int | None] = []
        following = 0
        for piece in self.pieces:
            of_text = piece.tokens.words()[piece.first :][: len(piece.text)]
            in_row = [None if word is None else following + word for word in of_text]
            following = next((word + 1 for word in reversed(in_row) if word is not None), following)
            words += piece.around(in_row, special=None, prompt=None)
        return words


class RowEncoding:
    """What `BatchEncoding` asks of a row for `tokens()`, `word_ids()`, `char_to_token()` and the like.

    It stands for a `tokenizers.Encoding`, which cannot be joined from those of sentences of one text. Each list has an
    entry for each token of the row. It is made when it is first asked for. All sentences of a row are sequence 0.

    Args:
        row: without padding.
        length: tokens with padding.
        on_the_left: where the padding is.
        pad_token_id: what it is.
        tokens_of: from ids to tokens.
    """

    n_sequences = 1

    def __init__(
        self, row: Row, length: int, on_the_left: bool, pad_token_id: int, tokens_of: Callable[[list[int]], Any]
    ) -> None:
        self.row = row
        missing = length - len(row.input_ids)
        self.padding = (missing, 0) if on_the_left else (0, missing)
        self.pad_token_id = pad_token_id
        self.tokens_of = tokens_of

    def __getstate__(self) -> dict[str, Any]:
        # without the tokenizer, to which `tokens_of` may belong
        return {name: getattr(self, name) for name in ("tokens", "offsets", "word_ids", "sequence_ids")}

    def _pad(self, values: list, value: Any) -> list:
        before, after = self.padding
        return [value] * before + values + [value] * after

    @cached_property
    def tokens(self) -> Any:  # list[str]
        return self.tokens_of(self._pad(self.row.input_ids, self.pad_token_id))

    @cached_property
    def offsets(self) -> list[tuple[int, int]]:
        return self._pad(self.row.offsets, (0, 0))

    @cached_property
    def word_ids(self) -> list[int | None]:
        return self._pad(self.row.words, None)

    @cached_property
    def sequence_ids(self) -> list[int | None]:
        return self._pad([None if special else 0 for special in self.row.special], None)

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
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(ids, others))])


def join_pieces(pieces: Sequence[Piece], limit: int | None) -> Row:
    """The sentences of a document as one row of at most `limit` tokens. If the last is cut, its end tokens stay."""
    if limit is None:
        return Row(pieces)
    kept: list[Piece] = []
    room = limit
    for piece in pieces:
        if room < len(piece):
            if room > len(piece.before) + len(piece.after):  # there is room for some text
                kept.append(piece.shortened(room))
            break
        kept.append(piece)
        room -= len(piece)
    return Row(kept)
