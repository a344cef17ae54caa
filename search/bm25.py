"""The BM25 analyzer: the terms of a text, which BM25 counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

import Stemmer

# Runs of characters of scripts that put no space between words.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")


def terms(text: str, language: str | None) -> list[str]:
    """The words of a text in lower case, stemmed if Snowball knows the language. Scripts without spaces between words
    give pairs of characters.

    Args:
        text: a document or a query.
        language: ISO 639-1 code.

    >>> terms("The houses, two houses", "en")
    ['the', 'hous', 'two', 'hous']
    >>> terms("2x 猫在睡觉, 猫", "zh")
    ['2x', '猫在', '在睡', '睡觉', '猫']
    """
    found: list[str] = []
    for word in re.findall(r"\w+", _UNSPACED.sub(r" \g<0> ", text.lower())):
        if _UNSPACED.match(word) and len(word) > 1:
            found += [word[start : start + 2] for start in range(len(word) - 1)]
        else:
            found.append(word)
    return _stemmer(language)(found)


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
