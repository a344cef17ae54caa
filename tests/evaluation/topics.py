"""Two texts, two labels, in English; in French, one text has the other's label. What a classifier scores that knows
English, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paths import written

CATS, DOGS = "the cat sat on the mat", "der hund"

ENGLISH = {"accuracy": 1.0, "macro_f1": 1.0, "documents": 2}
# Predicted cats, cats, dogs, cats. F1 of cats: precision 2/3, recall 1; of dogs: precision 1, recall 1/2.
FRENCH = {"accuracy": 0.75, "macro_f1": pytest.approx((0.8 + 2 / 3) / 2), "documents": 4}
AVERAGES = {
    "average": {"accuracy": 0.875, "macro_f1": pytest.approx((1 + (0.8 + 2 / 3) / 2) / 2)},
    "average, same language": {"accuracy": 1.0, "macro_f1": 1.0},
    "average, across languages": {"accuracy": 0.75, "macro_f1": pytest.approx((0.8 + 2 / 3) / 2)},
    "transfer gap": {"accuracy": 0.25, "macro_f1": pytest.approx(1 - (0.8 + 2 / 3) / 2)},
}


def write_texts(path: Path, *lines: tuple[str, str]) -> None:
    written(path, "".join(f"{label}\t{text}\n" for label, text in lines))


def write_topics(folder: Path) -> str:
    for part in ("train", "dev", "test"):
        write_texts(folder / f"en.{part}.tsv", ("cats", CATS), ("dogs", DOGS))
    write_texts(folder / "fr.test.tsv", ("cats", CATS), ("cats", CATS), ("dogs", DOGS), ("dogs", CATS))
    return str(folder)
