"""An index of documents in a folder: encoded, stored, brought up to date and ranked."""

from typing import Literal

# `dense` by the vectors of documents, `bm25` by words in common, `hybrid` by both, `late` as `hybrid`, but with the
# vector of the best sentence beside that of the document.
Ranking = Literal["dense", "bm25", "hybrid", "late"]
