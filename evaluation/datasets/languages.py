"""Languages and pairs of them. Named by ISO 639-1 codes whatever a data set calls them."""

from __future__ import annotations

from collections.abc import Sequence

import langcodes

# The document language that stands for all document languages of a set together.
POOL = "all"


def check_language(code: str) -> None:
    """Raises:
    ValueError: a language is not written in its one form, so that de and deu could stand side by side.

    >>> check_language("deu")
    Traceback (most recent call last):
    ValueError: language 'deu' is written 'de' here, its ISO 639-1 code
    """
    try:
        standard = langcodes.standardize_tag(code)
    except ValueError:  # no language code at all; a set may call its parts what it likes
        return
    language = standard.split("-")[0]
    if language != code.replace("_", "-").split("-")[0]:
        raise ValueError(f"language {code!r} is written {language!r} here, its ISO 639-1 code")


def languages_of(pair: str) -> tuple[str, str]:
    """Query and document language of a pair.

    Raises:
        ValueError: it is not two codes and a hyphen.

    >>> languages_of("en-de")
    ('en', 'de')
    """
    languages = pair.split("-")
    if len(languages) != 2 or not all(languages):
        raise ValueError(f"pair {pair!r} is not <query language>-<document language>, such as en-de or en-pt_BR")
    return languages[0], languages[1]


def query_and_document_languages(pairs: Sequence[str]) -> tuple[list[str], list[str]]:
    """The query languages and the document languages of some pairs, without the pool."""
    languages = [languages_of(pair) for pair in pairs]
    queries, documents = (list(dict.fromkeys(pair[side] for pair in languages)) for side in (0, 1))
    return queries, [language for language in documents if language != POOL]
