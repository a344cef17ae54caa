"""Splitting a text into sentences, and grouping sentences into passages."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

from .abbreviations_hmde import ends_no_sentence
from .marks_hmde import IGNORED_MARKS, MARKS
from .wrapping_hmde import wrapping_breaks

try:
    import sentencex
except ImportError as error:  # inside `try`, so that loading from the Hub reaches this message
    raise ImportError("HMDE finds the sentences of a document with sentencex: pip install sentencex") from error

# A line break ends a sentence, unless it only wraps the text; sentencex would read on past any single one.
_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
# Where sentences end and sentencex sees no end: an ideographic full stop before a digit, which it takes for a decimal
# point; full stops of Khmer, and of Ethiopic that are written as two; Tibetan's shad, unless the word before it says
# that the sentence goes on ("and", "if"); a full stop in brackets that are closed with the sentence.
_TIBETAN_WORDS = ("དང", "ནི", "ཏེ", "སྟེ", "ཞིང", "ཤིང", "ཅིང", "ནས", "པས", "བས")
_TIBETAN = "".join(f"(?<!{word}.)(?<!{word}[་༌].)" for word in _TIBETAN_WORDS)
_ENDS = re.compile(
    rf"[。！？](?=\d)|[។៕]+\s*|[።፡]{{2}}\s*|[།༎༏༐༑]{_TIBETAN}[།༎༏༐༑\s]*|"
    r"[)\]](?<=\w[.!?…].)\s+(?=[^\W\d_a-z])"
)
# What each match of _ENDS holds, a bracket behind a stop only. Most lines hold none of it, and this search takes a
# fraction of the time, because it begins with one set of characters.
_MAY_END = re.compile(r"[。！？៕។፡།༎༏༐༑)\]](?:(?<![)\]])|(?<=[.!?…].))")
# Where it sees an end and the sentence goes on: behind the comma and the genitive of Burmese; before what closes it;
# behind a quotation, before the words of Japanese and Korean that say whose it is; before a small letter.
_GOES_ON_BEHIND = ("၊", "၏")
_NO_SPACE_BEHIND = re.compile(r"(?<!\w)[^\W\d_]{1,2}\.$")  # "EE.UU."
_GOES_ON_BEFORE = tuple(")]）］」』】〉》፡")
_IN_BRACKETS = re.compile(r"[^\W\d]\.[)\]]")  # "(etc.)"
_QUOTATION = re.compile(r"[.!?。！？…][」』”’\"'］）)]")
_SAYING = re.compile(r"[とっなのはがをにもで、]|이?라|하[고며였]|고\b|며\b")
_SMALL = re.compile("[a-zß-öø-ÿα-ωά-ώа-џ]")
# A longer sentence is split once more without regard to quotation marks and brackets: it is long speech, or one of
# them has no counterpart.
_LONG = 500
_PAIRED = re.compile("[\"'“”„«»‘’‹›`()\\[\\]{}「」『』（）]")
_WIDE_SPACES = "\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # all white space beyond ASCII
_WIDE_SPACE = re.compile(f"[{_WIDE_SPACES}]")
# Few sentences hold one of these, and one search for all takes a quarter of the time of replacing each kind.
_MARK_OR_WIDE_SPACE = re.compile(f"[{MARKS}{_WIDE_SPACES}]")
# sentencex fails at a single capital letter before such a space and a full stop ("C\u00a0."), where it takes the length
# of the space for one byte.
_WIDE_SPACE_BEFORE_STOP = re.compile(rf"[{_WIDE_SPACES}](?=\.)")
_LETTER = re.compile(r"[^\W\d_]")
_LANGUAGE_OF_SCRIPT = {"GREEK": "el", "CYRILLIC": "ru", "ARMENIAN": "hy", "ETHIOPIC": "am"}
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

    They are sentencex's, but for what it takes for an end, such as that of an abbreviation, or does not know. A line
    of zero-width characters alone is no sentence. The text is split only as far as the iterator is read.

    Args:
        text: free of surrogates (see `replace_surrogates`).
        language: ISO 639-1 code, with or without a region (`pt`, `pt-BR`). None or an unknown code: general rules and
            the abbreviations of all languages.

    >>> [text[a:b] for text in ["Is it Dr. Smith? Yes.\\nHe came"] for a, b in sentence_spans(text, "en")]
    ['Is it Dr. Smith?', 'Yes.', 'He came']
    >>> [text[a:b] for text in ["它很大。2004年来了。"] for a, b in sentence_spans(text, "zh")]
    ['它很大。', '2004年来了。']
    """
    code = replace_surrogates(re.split(r"[-_]", language)[0].lower()) if language else None
    for begin, last in _paragraphs(text):
        while begin < last:
            end = min(begin + _WINDOW, last)
            window = _WIDE_SPACE_BEFORE_STOP.sub(" ", text[begin:end].replace("\n", " ").replace("\r", " "))
            sentences = list(_sentences(window, code))
            if end < last and len(sentences) > 1:
                sentences.pop()  # it may go on behind the window, so the next window begins with it
            for sentence in sentences:
                stripped = sentence.strip()
                if _is_visible(stripped):
                    first = begin + sentence.index(stripped)
                    yield first, first + len(stripped)
                begin += len(sentence)


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Begin and end of each line of a text, or of lines together that only wrap a paragraph."""
    wrapping = wrapping_breaks(text)
    place, begin = next(wrapping, None), None
    for line in _LINE.finditer(text):
        begin = line.start() if begin is None else begin
        if place is not None and line.end() <= place < line.end() + 2:  # "\r" may come before
            place = next(wrapping, None)
        else:
            yield begin, line.end()
            begin = None


def _sentences(text: str, language: str | None) -> Iterator[str]:
    """The sentences of a part of a line, with the white space behind them: sentencex's, corrected."""
    rules = language or _language_of_marks(text)
    parts = sentencex.segment(rules, text)
    if len(text) > _LONG:
        shorter = (sentencex.segment(rules, _PAIRED.sub(" ", part)) if len(part) > _LONG else [part] for part in parts)
        parts = chain.from_iterable(shorter)
    found = {*accumulate(map(len, parts))}
    if _MAY_END.search(text):
        found.update(match.end() for match in _ENDS.finditer(text))
    cased = not text.islower()
    begin = 0
    for end in sorted(found):
        if end == len(text) or not _goes_on(text[begin:end], text[end : end + 20], language, cased):
            yield text[begin:end]
            begin = end


def _goes_on(sentence: str, after: str, language: str | None, cased: bool) -> bool:
    """Whether a sentence goes on where sentencex ends it, before `after`. `cased`: capitals tell where one begins."""
    before, after = sentence.rstrip(), unicodedata.normalize("NFC", after)
    if before.endswith(_GOES_ON_BEHIND) or after.startswith(_GOES_ON_BEFORE):
        return True
    # Patterns get the last characters alone, because a search for what is at the end looks at the whole sentence.
    if sentence.endswith(".") and _NO_SPACE_BEHIND.search(sentence[-4:]):
        return True
    if language in ("ja", "ko", None) and _QUOTATION.fullmatch(before[-2:]) and _SAYING.match(after):
        return True
    if _IN_BRACKETS.fullmatch(before[-3:]):
        before = before[:-1]
    if not before.endswith("."):
        return False
    return (cased and _SMALL.match(after) is not None) or ends_no_sentence(before, after, language)


def _language_of_marks(text: str) -> str:
    """A language with the marks of a text whose language is not known."""
    letter = _LETTER.search(text)
    return _LANGUAGE_OF_SCRIPT.get(unicodedata.name(letter[0], "").split(" ")[0], "en") if letter else "en"


def join_short_spans(spans: Iterable[tuple[int, int]], text: str, min_bytes: int) -> Iterator[tuple[int, int]]:
    """Joins sentences of fewer than `min_bytes` bytes to the next one, and at the end of the text to the one before.

    A heading or "Yes." says little by itself, yet its vector is near to many queries. Bytes of UTF-8 are counted
    because writing systems with fewer characters a word have more bytes a character; those of NFC, with plain spaces
    and without the marks that readers ignore, so that a text has the same sentences however these are written.

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
        plain = text[first:end]
        if not plain.isascii() and _MARK_OR_WIDE_SPACE.search(plain):
            plain = IGNORED_MARKS.sub("", _WIDE_SPACE.sub(" ", plain))
        if len(unicodedata.normalize("NFC", plain).encode()) >= min_bytes:
            if long_enough is not None:
                yield long_enough
            long_enough, first = (first, end), None
    if first is not None:
        long_enough = first if long_enough is None else long_enough[0], end
    if long_enough is not None:
        yield long_enough


def _is_visible(text: str) -> bool:
    """Whether a text has something to see: mostly its first character is a letter."""
    return text[:1].isalnum() or any(unicodedata.category(character) not in _INVISIBLE for character in text)


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
