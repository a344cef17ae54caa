"""The BM25 analyzer: the terms of a query or a document, which BM25 counts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from operator import add

import regex
import Stemmer

from modeling_hmde.marks_hmde import IGNORED_MARKS

# Runs of characters of scripts that put no space between words.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")

# Combining marks, such as the vowel signs of Hindi, belong to the character before them. Python's own `\w` lacks them.
_WORD = regex.compile(r"[\p{L}\p{N}_][\p{L}\p{N}\p{M}_]*")
_CHARACTER = regex.compile(r".\p{M}*")
_HAN = regex.compile(r"\p{Han}")

# Joiners within words of Indic scripts and Persian, beside those that models ignore.
_IGNORED = re.compile(rf"{IGNORED_MARKS.pattern}|[\u200c\u200d]")


def terms(text: str, language: str | None) -> list[str]:
    """The words of a text without case, stemmed if Snowball knows the language. Scripts without spaces between words
    give pairs of characters, each with its combining marks. Letters count as the same in whatever form Unicode has them
    (NFKC: composed or not, full-width, ligatures, presentation forms), as do ß and ss, ё and е. Marks that readers
    ignore do not count.

    Args:
        text: a query; of a document, see `document_terms`.
        language: ISO 639-1 code.

    >>> terms("The houses, two houses", "en")
    ['the', 'hous', 'two', 'hous']
    >>> terms("ＲＸ 2x 猫在睡觉, 猫", "zh")
    ['rx', '2x', '猫在', '在睡', '睡觉', '猫']
    >>> terms("कुत्ता", "hi"), terms("ที่นี่มี", "th")
    (['कुत्त'], ['ที่นี่', 'นี่มี'])
    """
    found: list[str] = []
    folded = unicodedata.normalize("NFKC", _IGNORED.sub("", unicodedata.normalize("NFKC", text)).casefold())
    for word in _WORD.findall(_UNSPACED.sub(r" \g<0> ", folded.replace("ё", "е"))):
        characters = _CHARACTER.findall(word) if _UNSPACED.match(word) else [word]
        found += map(add, characters, characters[1:]) if len(characters) > 1 else characters
    return _stemmer(language)(found)


def document_terms(text: str, language: str | None) -> list[str]:
    """The terms of a document: beside pairs, each Han character alone, so that a query of one finds it.

    >>> document_terms("猫在睡 cats", "en")
    ['猫在', '在睡', 'cat', '猫', '在', '睡']
    """
    return terms(text, language) + _HAN.findall(unicodedata.normalize("NFKC", text))


def query_terms(query: str, languages: Sequence[str | None]) -> list[str]:
    """The terms of a query whose language is unknown: those of each language it may be in, each term once. A stem of
    the wrong language is found in few documents, so it does little harm.

    >>> query_terms("Two houses", [None, "en"])
    ['two', 'houses', 'hous']
    """
    return list(dict.fromkeys(term for language in languages for term in terms(query, language)))


@cache
def _stemmer(language: str | None) -> Callable[[list[str]], list[str]]:
    try:
        return Stemmer.Stemmer(language or "").stemWords
    except (KeyError, UnicodeEncodeError):  # Snowball does not know the language
        return list
