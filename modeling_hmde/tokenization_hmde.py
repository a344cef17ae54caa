"""Text to tokens: a document becomes one row of ids, and beside each id stands the index of its sentence.

input_ids     [CLS] s1 ... [SEP] [CLS] s2 ... [SEP] [CLS] s3 ... [SEP] [PAD] [PAD]
sentence_ids    0    0 ...   0     1    1 ...   1     2    2 ...   2    -1    -1
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from itertools import islice
from typing import Any, Literal, get_args

import numpy as np
from tokenizers import Regex, normalizers
from transformers import AutoTokenizer, BatchEncoding, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER, TruncationStrategy

from .configuration_hmde import HMDEConfig
from .loading_hmde import ShipsCode, be_found_by_dill, refuse_misspelt
from .marks_hmde import read_past_marks
from .pipeline_hmde import PROMPTS_OF_DOCUMENTS, read_pipeline
from .refusals_hmde import refuse_arguments, warn_of_truncation
from .rows_hmde import Piece, Row, Tokens, common_start, join_pieces, rows_by_passage
from .segmentation_hmde import check_texts, join_short_spans, language_of_each, sentence_spans

# A text that is not split into sentences is cut before it is tokenised, to this many characters for each token that it
# may have. Tokens are far shorter in every language, so nothing is lost, and no text of megabytes is tokenised whole.
MAX_CHARACTERS_PER_TOKEN = 64

# A text that is split is tokenised in steps, until it has as many pieces as are kept. A step reads so many characters
# for each token that may still come, which is less than there are in most languages. Texts are tokenised together as
# long as they have no more characters than this, because the backend's result takes about 100 bytes a token.
CHARACTERS_PER_TOKEN = 2
MAX_CHARACTERS_AT_ONCE = 2**22

Segmentation = Literal["sentences", "chunks", "windows"]
LongSentences = Literal["split", "cut"]


class HMDETokenizer(ShipsCode, PreTrainedTokenizerFast):
    """A sentence encoder's tokenizer, applied to documents.

    It splits a text into sentences, keeps `max_sentences` of them, and puts them end to end, each with the sentence
    encoder's own special tokens, if it has any. "[CLS]" or "<s>" in a text stays text and never becomes a special
    token. An empty or white-space document is one empty sentence: the special tokens alone, or, where there are none,
    one end of text or padding token. `sentence_ids` says which tokens are a sentence: 0 for those of the first, and so
    on, -1 for padding. Marks that readers ignore, such as soft hyphens, are not read (see marks_hmde.py).

    A call takes what every tokenizer takes, and
        language: ISO 639-1 code for all texts, or one for each; it selects the sentence splitter's rules.
        as_queries: each text is one sentence, for the sentence encoder.
        truncation, max_length: limit the whole row; the last sentence that is kept still ends with its end token.
        add_special_tokens: False reads the whole text as one sequence of tokens, without sentences, limits and prompts,
            as `tokenize` does. So do `truncation=False` and a `max_length` above `model_max_length` together, with the
            start and end token around the text. This is what text splitters ask for.
        return_truncated: adds `num_truncated_sentences` and `num_truncated_tokens`, what each text lost to any of the
            limits. Each text is then read to its end, which takes longer.

    Args:
        max_sentences: most sentences of a document.
        max_sentence_length: most tokens of a sentence, special tokens included.
        min_sentence_bytes: a sentence of fewer bytes of UTF-8 is read as one with the next (see `join_short_spans`).
        segmentation: `sentences`; or `chunks` of `max_sentence_length` tokens, which ignore sentences (the paper's
            table 4); or `windows`, which are such chunks, each with the last third of the text of the one before
            (section 3.3: N_S / 3, 42 tokens of 128 with a start and an end token).
        long_sentences: a sentence that is too long becomes several (`split`), so that no text is lost in languages that
            the splitter does not split, such as Thai; or it loses its end (`cut`), as in the paper.
        sentence_prompt: stands before each sentence of a document, such as e5's "passage: ".
        query_prompt: stands before each text that is read `as_queries`, such as e5's "query: ". A model whose
            `query_path` is "document_encoder" reads queries as documents, with `sentence_prompt`.
        model_max_length: most tokens of a row where `truncation=True` comes without `max_length`. None, or more than
            `max_sentences` of `max_sentence_length` have: what these have.
    """

    def __init__(
        self,
        *args: Any,
        max_sentences: int = HMDEConfig.max_sentences,
        max_sentence_length: int = HMDEConfig.max_sentence_length,
        min_sentence_bytes: int = 0,
        segmentation: Segmentation = "sentences",
        long_sentences: LongSentences = "split",
        sentence_prompt: str = "",
        query_prompt: str = "",
        **kwargs: Any,
    ) -> None:
        refuse_misspelt(kwargs, signature(HMDETokenizer).parameters)
        chosen = {"segmentation": (segmentation, Segmentation), "long_sentences": (long_sentences, LongSentences)}
        for option, (value, known) in chosen.items():
            if value not in get_args(known):
                raise ValueError(f"{option} is {value!r}; it must be one of {', '.join(get_args(known))}")
        if max_sentences < 1:
            raise ValueError(f"max_sentences is {max_sentences}; it must be at least 1")
        self.max_sentences = max_sentences
        self.max_sentence_length = max_sentence_length
        self.min_sentence_bytes = min_sentence_bytes
        self.segmentation = segmentation
        self.long_sentences = long_sentences
        self.sentence_prompt = sentence_prompt
        self.query_prompt = query_prompt
        kwargs["split_special_tokens"] = True  # never read a special token in a text
        kwargs["auto_map"] = {"AutoTokenizer": ("tokenization_hmde.HMDETokenizer", None)}
        super().__init__(
            *args,
            max_sentences=max_sentences,
            max_sentence_length=max_sentence_length,
            min_sentence_bytes=min_sentence_bytes,
            segmentation=segmentation,
            long_sentences=long_sentences,
            sentence_prompt=sentence_prompt,
            query_prompt=query_prompt,
            **kwargs,
        )
        read_past_marks(self.backend_tokenizer)
        for prompt in (sentence_prompt, query_prompt):
            if special := [token for token in self.all_special_tokens if token in prompt]:
                raise ValueError(f"the prompt {prompt!r} has {special[0]}, but HMDE reads no special token in a text")
        self.model_input_names = ["input_ids", "attention_mask", "sentence_ids"]
        self._prefix_ids, self._suffix_ids = self._frame()

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> HMDETokenizer:
        # tokenizer.json holds the added tokens. To list them, transformers would parse its megabytes again, in Python.
        changed: Any = kwargs.keys() & {"max_sentences", "max_sentence_length"}
        follows = {"model_max_length": None} if changed else {}
        return super().from_pretrained(*args, **{"added_tokens_decoder": {}, **follows, **kwargs})

    @classmethod
    def convert_to_native_format(cls, trust_remote_code: bool = False, **kwargs: Any) -> dict[str, Any]:
        # tokenizer.json is complete; transformers would rebuild the backend of a class that has its own __init__.
        return kwargs

    @classmethod
    def from_sentence_encoder(cls, name_or_path: str, **options: Any) -> HMDETokenizer:
        """The tokenizer for documents, from that of a pretrained sentence encoder.

        Args:
            name_or_path: a Hub name or a folder: a pipeline of sentence-transformers, or a transformer by itself.
            options: arguments of this class. Prompts that are not given are those of the pipeline, where it has some:
                "query" before queries, "document", "passage" or "corpus" before sentences; `""` for none.

        Raises:
            ValueError: the encoder's tokenizer has no padding token or is not backed by the `tokenizers` library, or an
                option is misspelt.
        """
        pipeline = read_pipeline(name_or_path, modules=(), pooling="mean")  # what follows the tokens is the model's
        base = AutoTokenizer.from_pretrained(name_or_path, subfolder=pipeline.encoder)
        if not base.is_fast:
            raise ValueError(
                f"the tokenizer of {name_or_path} is a {type(base).__name__}, not backed by the tokenizers library; "
                "use an encoder that has a tokenizer.json"
            )
        backend = base.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        steps = [normalizers.Lowercase()] if pipeline.lower_case else []
        steps += [] if backend.normalizer is None else [backend.normalizer]
        backend.normalizer = normalizers.Sequence(steps + _break_up_special_tokens(base.all_special_tokens))
        prompts = {"query_prompt": pipeline.prompt("query"), "sentence_prompt": pipeline.prompt(*PROMPTS_OF_DOCUMENTS)}
        return cls(tokenizer_object=backend, **{**base.special_tokens_map, **prompts, **options})

    def by_passage(self, rows: Mapping[str, Any], config: HMDEConfig) -> dict[str, np.ndarray]:
        """The inputs of an exported model: documents cut into passages.

        Args:
            rows: `input_ids` and `sentence_ids` of documents, lists without padding: what `tokenizer(texts)` gives.
            config: the model's.

        Returns:
            `input_ids` and `attention_mask` (documents, most passages, longest passage), and `sentence_lengths`
            (documents, most sentences), the tokens of each sentence, 0 where there is none; all int64.
        """
        return rows_by_passage(rows["input_ids"], rows["sentence_ids"], config, self.pad_token_id)

    @property
    def model_max_length(self) -> int:
        """What is set, and never more than the limits of sentences allow, which may change."""
        return min(self._model_max_length, self.max_sentences * self.max_sentence_length)

    @model_max_length.setter
    def model_max_length(self, value: int) -> None:
        # What is as long as the limits is no limit of its own, and does not stay where they change.
        self._model_max_length = value if value < self.max_sentences * self.max_sentence_length else VERY_LARGE_INTEGER

    @property
    def start_token_id(self) -> int | None:
        """Id of the token that begins every sentence and stands nowhere else; None if there is none."""
        others = self._prefix_ids[1:] + self._suffix_ids + [self.pad_token_id]
        return next((token for token in self._prefix_ids[:1] if token not in others), None)

    @property
    def num_special_tokens(self) -> tuple[int, int]:
        """How many stand before and after the text of a sentence."""
        return len(self._prefix_ids), len(self._suffix_ids)

    def _frame(self) -> tuple[list[int], list[int]]:
        """The ids that the sentence encoder's tokenizer puts before and after a text."""
        if self.pad_token is None:
            raise ValueError("the tokenizer has no padding token; choose another sentence encoder")
        encoding = self.backend_tokenizer.encode("a", add_special_tokens=True)
        text = [index for index, special in enumerate(encoding.special_tokens_mask) if not special]
        if not text:
            raise ValueError(
                f"the tokenizer {self.name_or_path or type(self).__name__} reads no token in the text 'a', so the "
                "tokens around a text cannot be told from it; choose an encoder with another vocabulary"
            )
        prefix, suffix = encoding.ids[: text[0]], encoding.ids[text[-1] + 1 :]
        if self.max_sentence_length <= len(prefix) + len(suffix):
            raise ValueError(
                f"max_sentence_length is {self.max_sentence_length}, which leaves no room for text beside the "
                f"{len(prefix) + len(suffix)} special tokens of a sentence"
            )
        return prefix, suffix

    @property
    def truncation_side(self) -> str:
        """Documents lose what is at their end."""
        return "right"

    @truncation_side.setter
    def truncation_side(self, side: str) -> None:
        if side != "right":
            raise ValueError(
                f"truncation_side is {side!r}, but HMDE reads documents from their beginning; leave it out"
            )

    def _encode_plus(  # type: ignore[override]
        self,
        text: str | Sequence[str],
        text_pair: Any = None,
        add_special_tokens: bool = True,
        truncation_strategy: Any = TruncationStrategy.DO_NOT_TRUNCATE,
        max_length: int | None = None,
        padding_strategy: Any = False,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: Any = None,
        return_attention_mask: bool | None = None,
        language: str | Sequence[str | None] | None = None,
        as_queries: bool = False,
        return_truncated: bool = False,
        **others: Any,
    ) -> BatchEncoding:
        known = {*signature(self._encode_plus).parameters, *signature(super()._encode_plus).parameters}
        refuse_arguments(known, text_pair, others)
        texts = check_texts(list(text) if isinstance(text, Sequence) and not isinstance(text, (str, bytes)) else [text])
        padding = {
            "max_length": max_length,
            "pad_to_multiple_of": pad_to_multiple_of,
            "padding_side": padding_side,
            "return_attention_mask": return_attention_mask,
            "return_tensors": return_tensors,
        }
        limit = None if truncation_strategy == TruncationStrategy.DO_NOT_TRUNCATE else max_length
        if not add_special_tokens or (limit is None and (max_length or 0) > self.model_max_length):
            return super()._encode_plus(
                texts[0] if isinstance(text, str) else texts,
                add_special_tokens=add_special_tokens,
                padding_strategy=padding_strategy,
                truncation_strategy=truncation_strategy,
                **padding,
                **others | {"split_special_tokens": True},
            )
        if limit is not None and limit <= (frame := sum(self.num_special_tokens)):
            raise ValueError(
                f"max_length is {limit}, but a sentence takes {frame} special tokens; give at least {frame + 1}"
            )
        columns = ["input_ids", "sentence_ids"]
        columns += ["num_truncated_sentences", "num_truncated_tokens"] if return_truncated else []
        columns += ["offset_mapping"] if others.get("return_offsets_mapping") else []
        documents = self._pieces(
            texts,
            language_of_each(texts, language),
            as_queries,
            return_truncated,
            "offset_mapping" in columns,
        )
        rows = [join_pieces(pieces, self.max_sentences, limit) for pieces in documents]
        for pieces, row in zip(documents, rows):
            self._warn_of_truncation(pieces, row, limit)
        batch = {name: [getattr(row, name) for row in rows] for name in columns}
        if isinstance(text, str) and return_tensors is None:
            batch = {name: values[0] for name, values in batch.items()}
        return self.pad(batch, padding=padding_strategy, **padding)

    def _pad(self, encoded_inputs: Any, *args: Any, **kwargs: Any) -> dict:
        # The base class does not know sentence_ids, and does not pad offsets; the backend of a fast tokenizer does.
        padded = super()._pad(encoded_inputs, *args, **kwargs)
        left = (kwargs.get("padding_side") or self.padding_side) == "left"
        for name, value in {"sentence_ids": -1, "offset_mapping": (0, 0)}.items():
            if name in padded:
                values = list(padded[name])
                padding = [value] * (len(padded["input_ids"]) - len(values))
                padded[name] = padding + values if left else values + padding
        return padded

    def _warn_of_truncation(self, pieces: list[Piece], row: Row, limit: int | None) -> None:
        """A subclass for which a cut is no loss says nothing."""
        warn_of_truncation(pieces, row, self.max_sentences, self.max_sentence_length, limit)

    def _pieces(
        self,
        texts: list[str],
        languages: list[str | None],
        as_queries: bool,
        to_the_end: bool,
        with_offsets: bool,
    ) -> list[list[Piece]]:
        """The sentences of each text, at least one.

        Args:
            to_the_end: give all sentences. Otherwise, if there are more than are kept, some more come along to show it.
            with_offsets: also the characters of each token.
        """
        prompt = self.query_prompt if as_queries else self.sentence_prompt
        prompt_ids = self.backend_tokenizer.encode(prompt.strip(), add_special_tokens=False).ids if prompt else []
        special = sum(self.num_special_tokens)
        room = self.max_sentence_length - special - len(prompt_ids)
        if room <= 0:
            raise ValueError(
                f"max_sentence_length is {self.max_sentence_length}, which leaves no room for text beside {special} "
                f"special tokens and the {len(prompt_ids)} tokens of the prompt {prompt!r}"
            )
        backend = self._unlimited_backend()
        encode = backend.encode_batch if with_offsets or prompt else backend.encode_batch_fast
        once = as_queries or (self.segmentation == "sentences" and self.long_sentences == "cut")
        documents: list[list[Piece]] = [[] for _ in texts]
        unread = {
            index: self._spans(text, language, as_queries, to_the_end)
            for index, (text, language) in enumerate(zip(texts, languages))
        }
        while unread:
            spans = self._next_spans(unread, documents, to_the_end)
            read = [prompt + texts[index][begin:end] if begin < end else "" for index, begin, end in spans]
            for (index, begin, _), encoding in zip(spans, encode(read, add_special_tokens=False)):
                tokens = self._tokens(encoding, prompt, prompt_ids, begin, with_offsets)
                num_shared = len(encoding) - len(tokens.ids)
                documents[index] += self._frame_tokens(tokens, prompt_ids, num_shared, room, once)
        # A text without tokens, such as control characters, is one empty sentence, like an empty text.
        return [pieces or [self._frame_piece(prompt_ids, Tokens([], []), slice(0, 0))] for pieces in documents]

    def _next_spans(
        self, unread: dict[int, Iterator[tuple[int, int]]], documents: list[list[Piece]], to_the_end: bool
    ) -> list[tuple[int, int, int]]:
        """The next sentences to tokenize together: of each, the index of its text, begin and end.

        Args:
            unread: by the index of a text, its sentences still to come. Loses those that are read as far as needed.
            documents: the pieces so far.
        """
        spans: list[tuple[int, int, int]] = []
        room = MAX_CHARACTERS_AT_ONCE
        for index, sentences in [*unread.items()]:
            if room <= 0:
                break
            # One more than is kept, to know that something is left out. A long sentence may become several pieces.
            wanted = sys.maxsize if to_the_end else self.max_sentences + 1 - len(documents[index])
            characters = min(room, wanted * self.max_sentence_length * CHARACTERS_PER_TOKEN)
            room -= characters
            for begin, end in islice(sentences, max(wanted, 0)):
                spans.append((index, begin, end))
                characters -= end - begin
                if characters <= 0:
                    break
            else:
                del unread[index]
            room += characters  # that are left over, or came too many
        return spans

    @staticmethod
    def _tokens(encoding: Any, prompt: str, prompt_ids: list[int], begin: int, with_offsets: bool) -> Tokens:
        """The tokens of a sentence that begins at the character `begin`, without those that its prompt alone made."""
        if not prompt:  # a token that prompt and text made counts as text
            offsets = [(begin + first, begin + last) for first, last in encoding.offsets] if with_offsets else []
            return Tokens(encoding.ids, offsets)
        shared = common_start(encoding.ids, prompt_ids)
        behind = [(first - len(prompt), last - len(prompt)) for first, last in encoding.offsets[shared:]]
        num_prompt = sum(last <= 0 for _, last in behind)
        offsets = [(begin + max(0, first), begin + max(0, last)) for first, last in behind] if with_offsets else []
        return Tokens(encoding.ids[shared:], offsets, num_prompt)

    def _unlimited_backend(self) -> Any:
        """The backend, set to read whole texts, in which no special token is read."""
        backend = self.backend_tokenizer
        # Only where they are not set already, because another thread may be encoding.
        if not backend.encode_special_tokens:  # which is lost when the backend is copied or pickled
            backend.encode_special_tokens = True
        if backend.truncation is not None:  # left from a call without special tokens
            backend.no_truncation()
        if backend.padding is not None:
            backend.no_padding()
        return backend

    def _spans(self, text: str, language: str | None, as_query: bool, to_the_end: bool) -> Iterator[tuple[int, int]]:
        if as_query or self.segmentation != "sentences":
            num_tokens = self.max_sentence_length * (1 if as_query else self.max_sentences)
            begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
            return iter([(begin, end if to_the_end else min(begin + num_tokens * MAX_CHARACTERS_PER_TOKEN, end))])
        return join_short_spans(sentence_spans(text, language), text, self.min_sentence_bytes)

    def _frame_tokens(
        self, tokens: Tokens, prompt_ids: list[int], num_shared: int, room: int, once: bool
    ) -> list[Piece]:
        """A sentence as pieces of at most `room` tokens of its own; `once` keeps the first and drops the rest.

        Args:
            prompt_ids: of the prompt by itself, before each piece but the first.
            num_shared: how many of them stand before the first piece, whose tokens were read together with the prompt.
        """
        overlap = room // 3 if self.segmentation == "windows" else 0
        pieces = []
        # What the last window would have beyond the overlap must be new; a text within the overlap is one window.
        for first in range(0, max(len(tokens.ids) - overlap, min(len(tokens.ids), 1)), room - overlap):
            own_prompt = prompt_ids if first else prompt_ids[:num_shared]
            pieces.append(self._frame_piece(own_prompt, tokens, slice(first, first + room)))
            if first:
                pieces[-1].num_text_tokens -= overlap  # which count with the window before
            if once:
                pieces[0].num_cut_tokens = max(0, len(tokens.ids) - room)
                break
        return pieces

    def _frame_piece(self, prompt_ids: list[int], tokens: Tokens, part: slice) -> Piece:
        """A part of the tokens of a sentence, framed."""
        prefix, ids, suffix = self._prefix_ids, tokens.ids[part], self._suffix_ids
        if not prefix and not suffix and not prompt_ids and not ids:
            # an empty text, and a tokenizer without special tokens
            prefix = [self.pad_token_id if self.eos_token_id is None else self.eos_token_id]
        num_text_tokens = len(ids) - max(0, tokens.num_prompt - part.start)
        return Piece(prefix, prompt_ids, ids, suffix, tokens.offsets[part], num_text_tokens)


def _break_up_special_tokens(special_tokens: list[str]) -> list[normalizers.Normalizer]:
    """Normalizers after which no special token can be read in a text: "<s>" becomes "< s>".

    A Unigram vocabulary holds its special tokens as ordinary pieces, so text could become one. These normalizers come
    after the encoder's own, because that one can make "<s>" of other characters (full-width ones under NFKC).
    """
    # Only the first character is replaced, or all that is put in would point at the last character of the text's own.
    firsts = (Regex(f"{re.escape(token[0])}(?={re.escape(token[1:])})") for token in special_tokens)
    return [normalizers.Replace(first, f"{token[0]} ") for first, token in zip(firsts, special_tokens)]


be_found_by_dill(__name__)

__all__ = ["HMDETokenizer"]
