"""Names of languages that published sets use."""

from __future__ import annotations

import langcodes

# The language that stands for a group of languages, in NTREX and in FLORES, from which SIB-200 is made.
INDIVIDUAL_LANGUAGES = {
    "ar": "arb", "az": "azj", "fa": "pes", "lv": "lvs", "mg": "plt", "mn": "khk", "ms": "zsm", "ne": "npi", "no": "nob",
    "om": "gaz", "or": "ory", "ps": "pbt", "sq": "als", "sw": "swh", "uz": "uzn", "yi": "ydd",
}  # fmt: skip


def long_code(language: str) -> str:
    """ISO 639-3.

    >>> long_code("de"), long_code("zh"), long_code("pcm")
    ('deu', 'zho', 'pcm')
    """
    return langcodes.get(language).to_alpha3()
