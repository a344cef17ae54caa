"""Overlap: do the texts that a model was trained on hold sentences of the public test sets?

    python -m benchmarks.overlap --articles '[ARTICLES, ...]' --public data/public --output runs/overlap

Read are the articles that `python -m training.corpus` trains on: those of the languages, of the split `train`.
A text of a test set counts as found if an article has eight words of it in a row, whatever their case and punctuation;
where a script writes no spaces, twenty characters. Shorter texts are compared whole with the lines of the articles.
Writes

    results.json     the texts that were found, and where
    results.md       a table: texts of each set, and how many were found
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import hmde.common.threads

import regex

from benchmarks.measure import markdown_table, write_results
from evaluation.datasets.files import lines
from hmde.common.command_line import options_from, run
from hmde.common.progress import progress_bar
from hmde.common.records import rows
from replications.datasets.files import table
from replications.datasets.lareqa import read_paragraphs

WORDS, CHARACTERS = 8, 20
# With the vowel signs of Indic scripts, which `\w` lacks.
WORD = regex.compile(r"[\p{L}\p{N}\p{M}]+")
# Chinese, Japanese, Thai, Lao, Burmese and Khmer.
WITHOUT_SPACES = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


@dataclass
class OverlapOptions:
    """A comparison of articles with the public test sets.

    Args:
        articles: folders of tables of articles, as `python -m training.corpus` reads them.
        languages: of the articles, as `python -m training.corpus` takes them; all if none is named.
        public: folder that `python -m replications.datasets.public` wrote.
        output: folder to write.
    """

    articles: list[str]
    public: str
    output: str
    languages: list[str] = field(default_factory=list)


class PublicText(NamedTuple):
    """A text of a test set and its file."""

    set_name: str
    file: str
    text: str


def main(argv: list[str] | None = None) -> None:
    options = options_from(OverlapOptions, argv)
    tables = [
        path
        for folder in options.articles
        for path in sorted(Path(folder).glob("*"))
        if path.suffix in (".jsonl", ".parquet") and path.stem in (options.languages or [path.stem])
    ]
    if not tables:
        raise ValueError(
            f"{options.articles} have no tables of articles in {options.languages or 'any language'}; name folders of "
            "<language>.parquet or <language>.jsonl"
        )
    texts = list(public_texts(Path(options.public)))
    by_piece: dict[str, list[int]] = {}
    for number, text in enumerate(texts):
        for piece in pieces(text.text):
            by_piece.setdefault(piece, []).append(number)
    found: dict[int, str] = {}  # where
    with progress_bar("tables", len(tables), "table") as progress:
        for path in tables:
            for row, article in rows(path, ["split", "text"]):
                for piece in pieces(article["text"]) if article["split"] == "train" else ():
                    for number in by_piece.get(piece, ()):
                        found.setdefault(number, f"{path}, row {row}")
            progress.update()
    counts = [
        {"set": name, "texts": len(own), "found": len(own & found.keys()), "share": len(own & found.keys()) / len(own)}
        for name in dict.fromkeys(text.set_name for text in texts)
        for own in [{number for number, text in enumerate(texts) if text.set_name == name}]
    ]
    shown = {number: texts[number]._asdict() | {"article": where} for number, where in found.items()}
    columns = {"set": "", "texts": ",", "found": ",", "share": ".2%"}
    write_results(options, markdown_table(columns, counts), sets=counts, found=list(shown.values()))


def public_texts(folder: Path) -> Iterator[PublicText]:
    """The texts of all sets.

    Raises:
        ValueError: there are none, or a file is malformed.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        raise ValueError(
            f"{folder} has no files; `python -m replications.datasets.public --output {folder}` fetches them"
        )
    for path in files:
        name = path.relative_to(folder).parts[0]
        for text in texts_of(name, path):
            yield PublicText(name, path.name if name != "sib200" else f"{path.parent.name}/{path.name}", text)


def texts_of(set_name: str, path: Path) -> Iterator[str]:
    if set_name == "lareqa":
        for paragraph in read_paragraphs(path):
            yield from (question.text for question in paragraph.questions)
            yield from (paragraph.text[begin:end] for begin, end in paragraph.sentences)
    elif set_name == "sib200":
        yield from (text for (text,) in table(path, "text"))
    else:
        yield from (line for _, line in lines(path))


def pieces(text: str) -> Iterator[str]:
    """All runs of eight words, or twenty characters, of each line of a text; of a shorter line, all of it.

    >>> list(pieces("One, two three four five six seven eight nine.\\nTen!"))[1:]
    ['two three four five six seven eight nine', 'ten']
    """
    for line in text.lower().splitlines():
        words = WORD.findall(line)
        if 2 * len(WITHOUT_SPACES.findall(line)) > len(line):
            units, length, between = "".join(words), CHARACTERS, ""
        else:
            units, length, between = words, WORDS, " "
        for begin in range(max(len(units) - length, 0) + 1 if units else 0):
            yield between.join(units[begin : begin + length])


if __name__ == "__main__":
    run(main)
