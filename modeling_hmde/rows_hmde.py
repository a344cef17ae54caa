"""A document as a row of tokens: its sentences, and how they are joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby, islice, pairwise, takewhile
from typing import NamedTuple

import numpy as np

from .configuration_hmde import HMDEConfig
from .segmentation_hmde import sentences_per_passage


class Tokens(NamedTuple):
    """The tokens of a sentence.

    Args:
        ids: without those that a prompt alone made.
        offsets: begin and end of each, in characters of the document. Empty if nobody asked for them.
        num_prompt: how many at the beginning the prompt made too.
    """

    ids: list[int]
    offsets: list[tuple[int, int]]
    num_prompt: int = 0


@dataclass
class Piece:
    """A sentence, or a part of one that is too long: the ids of its tokens and what is put around them."""

    before: list[int]  # special tokens
    prompt: list[int]
    text: list[int]
    after: list[int]  # special tokens
    offsets: list[tuple[int, int]]  # of `text`, see Tokens
    num_text_tokens: int  # without those of the prompt
    num_cut_tokens: int = 0  # that a sentence lost at its end

    def __len__(self) -> int:
        return len(self.before) + len(self.prompt) + len(self.text) + len(self.after)

    def shortened(self, num_tokens: int) -> Piece:
        """The piece cut to `num_tokens`; its end tokens stay."""
        room = num_tokens - len(self.before) - len(self.after)
        num_text_tokens = max(0, self.num_text_tokens - len(self) + num_tokens)
        prompt, text = self.prompt[:room], self.text[: max(0, room - len(self.prompt))]
        return replace(self, prompt=prompt, text=text, num_text_tokens=num_text_tokens, num_cut_tokens=0)


class Row:
    """A document: the tokens of its sentences end to end.

    Args:
        kept: its sentences.
        read: those of the text, of which some may not be kept.
    """

    def __init__(self, kept: Sequence[Piece], read: Sequence[Piece]) -> None:
        self.pieces = kept
        self.input_ids: list[int] = []
        self.sentence_ids: list[int] = []  # index of the token's sentence
        for index, piece in enumerate(kept):
            self.input_ids += piece.before + piece.prompt + piece.text + piece.after
            self.sentence_ids += [index] * len(piece)
        self.num_truncated_sentences = len(read) - len(kept)
        self.num_truncated_tokens = sum(piece.num_text_tokens + piece.num_cut_tokens for piece in read)
        self.num_truncated_tokens -= sum(piece.num_text_tokens for piece in kept)

    @property
    def offset_mapping(self) -> list[tuple[int, int]]:
        """Characters of the document, (0, 0) for tokens that stand for no text."""
        offsets: list[tuple[int, int]] = []
        for piece in self.pieces:
            offsets += [(0, 0)] * len(piece.before + piece.prompt) + piece.offsets[: len(piece.text)]
            offsets += [(0, 0)] * len(piece.after)
        return offsets


def common_start(ids: list[int], others: list[int]) -> int:
    """How many ids at the beginning are the same."""
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(ids, others))])


def join_pieces(pieces: Sequence[Piece], max_sentences: int, limit: int | None) -> Row:
    """The first sentences of a document as a row of at most `limit` tokens. If the last is cut, its end tokens stay."""
    if limit is None:
        return Row(pieces[:max_sentences], pieces)
    kept: list[Piece] = []
    room = limit
    for piece in pieces[:max_sentences]:
        if room < len(piece):
            if room > len(piece.before) + len(piece.after):  # there is room for some text
                kept.append(piece.shortened(room))
            break
        kept.append(piece)
        room -= len(piece)
    return Row(kept, pieces)


def rows_by_passage(
    input_ids: Sequence[Sequence[int]], sentence_ids: Sequence[Sequence[int]], config: HMDEConfig, pad_token_id: int
) -> dict[str, np.ndarray]:
    """Rows of documents, without padding, cut into passages: see `HMDETokenizer.by_passage`."""
    before, after = config.left_out_in_passages
    documents, lengths = [], []
    for row, places in zip(input_ids, sentence_ids):
        tokens = iter(row)
        sentences = [list(islice(tokens, len([*run]))) for _, run in groupby(places)]
        counts = sentences_per_passage(map(len, sentences), config.passage_length, before + after)
        passages = [sentences[begin:end] for begin, end in pairwise(accumulate(counts, initial=0))]
        for passage in passages:  # loses the special tokens within, as in `join_sentences`
            passage[1:] = [sentence[min(before, len(sentence) - 1) :] for sentence in passage[1:]]
            passage[:-1] = [sentence[: max(1, len(sentence) - after)] for sentence in passage[:-1]]
        lengths.append([len(sentence) for passage in passages for sentence in passage])
        documents.append([[*chain(*passage)] for passage in passages])
    longest = max(len(ids) for passages_of_document in documents for ids in passages_of_document)
    ids_of_passages = np.full((len(documents), max(map(len, documents)), longest), pad_token_id)
    attention_mask = np.zeros_like(ids_of_passages)
    sentence_lengths = np.zeros((len(documents), max(map(len, lengths))), dtype=np.int64)
    for document, passages_of_document in enumerate(documents):
        sentence_lengths[document, : len(lengths[document])] = lengths[document]
        for position, ids in enumerate(passages_of_document):
            ids_of_passages[document, position, : len(ids)] = ids
            attention_mask[document, position, : len(ids)] = 1
    return {"input_ids": ids_of_passages, "attention_mask": attention_mask, "sentence_lengths": sentence_lengths}
