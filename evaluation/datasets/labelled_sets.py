"""Labelled texts in this project's own format, read and checked. Knows no systems and no measures.

A classification set is a folder of `<language>.<part>.tsv` in MLDoc's format, label TAB text. All files are UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from evaluation.datasets.files import lines
from evaluation.datasets.languages import check_language
from evaluation.recipes import ClassificationTask
from hmde.common.records import malformed


class LabelledTexts(NamedTuple):
    """The documents of one file."""

    file: Path
    language: str
    labels: list[str]
    texts: list[str]


class LabelledSet(NamedTuple):
    """The documents of a task: training and dev documents of each train language, and those of each test."""

    train: list[LabelledTexts]
    dev: list[LabelledTexts]
    tests: list[LabelledTexts]


def read_labelled_set(task: ClassificationTask) -> LabelledSet:
    """The files of a task, whose format is hmde by now.

    Raises:
        ValueError: one is missing or malformed, or has a label that cannot be learnt from the training documents.
    """
    for language in {*task.train_languages, *task.test_languages}:
        check_language(language)
    train, dev = (read_part(task.data, part, task.train_languages) for part in ("train", "dev"))
    tests = read_part(task.data, "test", task.test_languages)
    for part in train:
        known = set(part.labels)
        if len(known) == 1:
            raise ValueError(f"{part.file} has no label but {known.pop()!r}; there is nothing to tell apart")
        check_labels([*dev, *tests], known, str(part.file))
    return LabelledSet(train, dev, tests)


def read_part(folder: str | Path, part: str, languages: Sequence[str]) -> list[LabelledTexts]:
    """The documents of some languages, of one part: train, dev or test. Errors as in `read_labelled_texts`."""
    files = [(Path(folder) / f"{language}.{part}.tsv", language) for language in languages]
    return [LabelledTexts(file, language, *read_labelled_texts(file)) for file, language in files]


def check_labels(files: Sequence[LabelledTexts], known: set[str], known_by: str) -> None:
    """Raises:
    ValueError: a file has a label that cannot be predicted.
    """
    for texts in files:
        for label in texts.labels:
            if label not in known:
                raise ValueError(
                    f"{texts.file} has the label {label!r}, which {known_by} does not know: it knows "
                    f"{', '.join(sorted(known))}; use the same labels in all files"
                )


def read_labelled_texts(path: Path) -> tuple[list[str], list[str]]:
    """The labels and the texts of a file in MLDoc's format.

    Raises:
        ValueError: the file is missing or empty, or a line has no label and text.
    """
    labels, texts = [], []
    for line_number, line in lines(path):
        label, tab, text = line.partition("\t")
        if not tab or not label.strip():
            form = "label TAB text, without line breaks in the text"
            raise malformed(path, line_number, f"is of another form; write {form}")
        labels.append(label)
        texts.append(text)
    return labels, texts
