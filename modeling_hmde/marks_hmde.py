"""Marks that readers ignore: texts that differ in nothing else count as the same.

They are the vowel signs of Arabic and Hebrew, which most writers leave out, and Arabic's tatweel, which stretches a
word; soft hyphens, which show where a word may be divided; and characters without width that join words, name a
direction or begin a file. Characters that change what is read, as the joiners of Indic scripts do, are not among them.
"""

from __future__ import annotations

import re
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers

MARKS = (  # as a set of a pattern has them
    "\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\ufe70-\ufe7f"  # Arabic
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Hebrew
    "\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\u061c\ufeff"
)
IGNORED_MARKS = re.compile(f"[{MARKS}]+")


def read_past_marks(backend: Tokenizer) -> None:
    """Lets a tokenizer leave them out. The places of its tokens stay those in the text as it is."""
    leave_out = normalizers.Replace(Regex(IGNORED_MARKS.pattern), "")
    own: Any = backend.normalizer
    first = own[0] if isinstance(own, normalizers.Sequence) and len(own) else own
    if first is None or first.__getstate__() != leave_out.__getstate__():  # else it was saved with this step
        backend.normalizer = normalizers.Sequence([leave_out] if own is None else [leave_out, own])
