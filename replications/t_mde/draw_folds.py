"""Draw the ten training and test sets of MLDoc on which T-MDE's thesis tests significance (Li 2021, section 4.6).

    python -m replications.t_mde.draw_folds --data data/mldoc --output runs/mldoc-folds

In each language the 10,000 training documents, the dev and the test documents are put together. Five samples of 2,000
are drawn from them, none with a document of another. Half of a sample trains, the other half tests, and then the other
way round: ten folds of 1,000 and 1,000. The thesis does not say on what the epoch of the network is chosen; here it is
on 1,000 documents more, which are in no sample.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import hmde.common.terminal
import hmde.common.threads

from hmde.common.command_line import options_from, run
from hmde.common.files import folder_written_whole, write_text
from replications.datasets.mldoc import labelled_lines
from replications.mldoc import as_laser_leaves_it

SAMPLES = 5
HALF = 1000  # documents of a training set, a test set, or the dev set


@dataclass(kw_only=True)
class FoldsOptions:
    """Ten training and test sets of MLDoc."""

    data: str
    """Folder of MLDoc's files, see replications/datasets/mldoc.py, with <language>.train.10000 too."""

    output: str
    """Folder to write, with one folder a fold, 1 to 10, of <language>.<part>.tsv."""

    languages: list[str] = field(default_factory=lambda: ["en", "de", "fr", "es", "it"])
    """Languages to draw in."""

    seed: int = 42
    """Seed of the draw."""


def main(argv: list[str] | None = None) -> None:
    options = options_from(FoldsOptions, argv)
    folds = {language: draw(options, language) for language in options.languages}
    with folder_written_whole(options.output) as folder:
        for language, language_folds in folds.items():
            for number, parts in enumerate(language_folds, start=1):
                for part, texts in parts.items():
                    write_text(folder / str(number) / f"{language}.{part}.tsv", "".join(f"{text}\n" for text in texts))


def draw(options: FoldsOptions, language: str) -> list[dict[str, list[str]]]:
    """The folds of a language, each its labelled texts by part.

    Raises:
        ValueError: a file is missing, or all files have too few documents.
    """
    parts = ("train.10000", "dev", "test")
    lines = [line for part in parts for line in labelled_lines(options.data, language, part)]
    documents = [as_laser_leaves_it(line) for line in lines]
    needed = (2 * SAMPLES + 1) * HALF
    if len(documents) < needed:
        raise ValueError(
            f"{options.data} has {len(documents)} documents of {language} in {', '.join(parts)}; ten folds need "
            f"{needed}, so bring MLDoc's files as its program writes them, or leave the language out"
        )
    random.Random(f"{options.seed} {language}").shuffle(documents)
    dev, *halves = (documents[begin : begin + HALF] for begin in range(0, needed, HALF))
    folds = []
    for one, other in zip(halves[::2], halves[1::2]):
        folds += [{"train": one, "dev": dev, "test": other}, {"train": other, "dev": dev, "test": one}]
    return folds


if __name__ == "__main__":
    run(main)
