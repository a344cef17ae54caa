"""Splitting a text into sentences, and grouping sentences into passages."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

try:
    import sentencex
except ImportError as error:  # inside `try`, so that loading from the Hub reaches this message
    raise ImportError("HMDE finds the sentences of a document with sentencex: pip install sentencex") from error

# A line break ends a sentence; sentencex would read on past a single one.
_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
# sentencex takes a full stop before a digit for a decimal point. An ideographic full stop never is one.
_GLUED = re.compile(r"(?<=[。！？])(?=\d)")
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
# sentencex fails at a single capital letter before such a space and a full stop ("C\u00a0."), where it takes the length
# of the space for one byte.
_WIDE_SPACE_BEFORE_STOP = re.compile(r"[^\S\x00-\x7f](?=\.)")
# Characters of a line that are split at once. No sentence is that long, but a line may be, and the time that sentencex
# takes grows with the square of the count of unpaired quotation marks.
_WINDOW = 10_000
_INVISIBLE = ("Cc", "Cf", "Zs")  # control characters, format characters (zero-width ones too), and spaces
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """The text with each unpaired surrogate, which has no UTF-8 form, as U+FFFD; the length stays the same.

    >>> replace_surrogates("a\\ud83db")
    'a\ufffdb'
    """
    return _SURROGATE.sub("\ufffd", text)


def check_texts(texts: Sequence[Any]) -> list[str]:
    """The texts, without unpaired surrogates.

    Raises:
        ValueError: there is none.
        TypeError: one is no string.
    """
    if not texts:
        raise ValueError("there is no text to tokenize: the list is empty")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text {index} is {type(text).__name__}, not str; give a string or a list of strings")
    return [replace_surrogates(text) for text in texts]


def language_of_each(texts: Sequence[str], language: str | Sequence[str | None] | None) -> list[str | None]:
    """The language code of each text, where `language` is one for all of them or holds one for each.

    Raises:
        TypeError: something is neither a string nor None.
        ValueError: there are not as many codes as texts.
    """
    codes: list[Any]
    if isinstance(language, str) or not isinstance(language, Iterable):
        codes = [language] * len(texts)
    else:
        codes = list(language)
    for index, code in enumerate(codes):
        if code is not None and not isinstance(code, str):
            raise TypeError(f"language {index} is {code!r}; give a code such as 'de', or None where it is not known")
    if len(codes) != len(texts):
        raise ValueError(f"{len(texts)} texts came with {len(codes)} languages; give one code, or one a text")
    return codes


def sentence_spans(text: str, language: str | None = None) -> Iterator[tuple[int, int]]:
    """Begin and end of each sentence of a text, in characters, without white space around it.

    A line of zero-width characters alone is no sentence. The text is split only as far as the iterator is read.

    Args:
        text: free of surrogates (see `replace_surrogates`).
        language: ISO 639-1 code, with or without a region (`pt`, `pt-BR`). None or an unknown code: general rules.

    >>> [text[a:b] for text in ["Is it Dr. Smith? Yes.\\nHe came"] for a, b in sentence_spans(text, "en")]
    ['Is it Dr. Smith?', 'Yes.', 'He came']
    >>> [text[a:b] for text in ["它很大。2004年来了。"] for a, b in sentence_spans(text, "zh")]
    ['它很大。', '2004年来了。']
    """
    rules = replace_surrogates(re.split(r"[-_]", language)[0].lower()) if language else "en"
    for line in _LINE.finditer(text):
        begin = line.start()
        while begin < line.end():
            end = min(begin + _WINDOW, line.end())
            window = _WIDE_SPACE_BEFORE_STOP.sub(" ", text[begin:end])
            sentences = [part for glued in _GLUED.split(window) for part in sentencex.segment(rules, glued)]
            if end < line.end() and len(sentences) > 1:
                sentences.pop()  # it may go on behind the window, so the next window begins with it
            for sentence in sentences:
                yield from _visible(sentence, begin)
                begin += len(sentence)


def join_short_spans(spans: Iterable[tuple[int, int]], text: str, min_bytes: int) -> Iterator[tuple[int, int]]:
    """Joins sentences of fewer than `min_bytes` bytes to the next one, and at the end of the text to the one before.

    A heading or "Yes." says little by itself, yet its vector is near to many queries. Bytes of UTF-8 are counted
    because writing systems with fewer characters a word have more bytes a character; those of NFC, with plain spaces,
    so that a text has the same sentences however its accents and spaces are written.

    Args:
        spans: begin and end of each sentence of `text`, in characters; read only as far as the result is.

    >>> [text[a:b] for text in ["Bread.\\nIt is made of flour. Why?"]
    ...  for a, b in join_short_spans(sentence_spans(text, "en"), text, min_bytes=16)]
    ['Bread.\\nIt is made of flour. Why?']
    >>> [text[a:b] for text in ["Bread.\\nIt is made of flour. Yeast makes it rise."]
    ...  for a, b in join_short_spans(sentence_spans(text, "en"), text, min_bytes=16)]
    ['Bread.\\nIt is made of flour.', 'Yeast makes it rise.']
    """
    long_enough: tuple[int, int] | None = None  # waits, because a short last sentence would join it
    first: int | None = None
    for begin, end in spans:
        first = begin if first is None else first
        if len(unicodedata.normalize("NFC", _WIDE_SPACE.sub(" ", text[first:end])).encode()) >= min_bytes:
            if long_enough is not None:
                yield long_enough
            long_enough, first = (first, end), None
    if first is not None:
        long_enough = first if long_enough is None else long_enough[0], end
    if long_enough is not None:
        yield long_enough


def _visible(sentence: str, begin: int) -> Iterator[tuple[int, int]]:
    """Begin and end of a sentence that begins at `begin`, without white space around it, if it has something to see."""
    stripped = sentence.strip()
    if any(unicodedata.category(character) not in _INVISIBLE for character in stripped):
        first = begin + len(sentence) - len(sentence.lstrip())
        yield first, first + len(stripped)


def punkt_spans(text: str, language: str | None = None) -> Iterator[tuple[int, int]]:
    """As `sentence_spans`, by NLTK's Punkt for English, in which the authors' code of HMDE splits all languages. A line
    break ends no sentence.

    Raises:
        ValueError: NLTK or its data are not here.
    """
    for begin, end in english_punkt().span_tokenize(text):
        yield from _visible(text[begin:end], begin)


@functools.cache
def english_punkt() -> Any:
    """NLTK's splitter for English.

    Raises:
        ValueError: NLTK or its data are not here.
    """
    try:
        from nltk.tokenize import PunktTokenizer

        return PunktTokenizer("english")
    except (ImportError, LookupError) as error:  # NLTK's LookupError is many lines
        missing = "NLTK" if isinstance(error, ImportError) else "punkt_tab, data of NLTK,"
        raise ValueError(
            f"segmentation is 'punkt', but {missing} is missing; run pip install nltk and "
            "python -m nltk.downloader punkt_tab, or use 'sentences'"
        ) from None


def sentences_per_passage(lengths: Iterable[int], passage_length: int, num_special: int = 2) -> list[int]:
    """How many consecutive sentences of a document go into each passage: as many as fit, at least one.

    Args:
        lengths: tokens of each sentence, special tokens included.
        passage_length: most tokens of a passage of several sentences; 0 makes each sentence a passage.
        num_special: special tokens of each sentence that a passage has once, however many sentences it has.

    >>> sentences_per_passage([30, 20, 60, 10, 80], passage_length=48)
    [2, 1, 1, 1]
    """
    counts: list[int] = []
    room = passage_length - num_special
    tokens = room + 1
    for length in lengths:
        text = max(length - num_special, 1)
        tokens += text
        if tokens > room:
            counts.append(0)
            tokens = text
        counts[-1] += 1
    return counts
