"""MLDoc (Schwenk and Li 2018). Reuters' RCV1 and RCV2 come from NIST on signing their agreement
(trec.nist.gov/data/reuters/reuters.html); github.com/facebookresearch/MLDoc holds the lists of documents and
generate_documents.py, which writes <language>.train.1000, <language>.dev and <language>.test, the language in English.
Use those files, never a copy from elsewhere."""

from __future__ import annotations

from pathlib import Path

from evaluation.datasets.files import lines
from evaluation.recipes import ClassificationTask
from hmde.common.files import write_text
from replications.datasets.files import parts

LANGUAGES = {
    "en": "english", "es": "spanish", "de": "german", "fr": "french", "it": "italian", "ru": "russian",
    "ja": "japanese", "zh": "chinese",
}  # fmt: skip


def convert(task: ClassificationTask, output: Path) -> None:
    for language, part in parts(task):
        file = "train.1000" if part == "train" else part
        text = "".join(f"{line}\n" for line in labelled_lines(task.data, language, file))
        write_text(output / f"{language}.{part}.tsv", text)


def labelled_lines(folder: str, language: str, part: str) -> list[str]:
    """The lines of one of MLDoc's files, label TAB text.

    Args:
        part: `train.1000`, `dev` ...

    Raises:
        ValueError: the file is missing or empty.
    """
    return [line for _, line in lines(Path(folder) / f"{LANGUAGES.get(language, language)}.{part}")]
