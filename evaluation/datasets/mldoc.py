"""MLDoc (Schwenk and Li 2018). Reuters' RCV1 and RCV2 come from NIST on signing their agreement
(trec.nist.gov/data/reuters/reuters.html); github.com/facebookresearch/MLDoc holds the lists of documents and
generate_documents.py, which writes <language>.train.1000, <language>.dev and <language>.test, the language in English.
Use those files, never a copy from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

from common.files import write_text
from evaluation.datasets.files import lines, parts
from evaluation.recipes import ClassificationTask

LANGUAGES = {
    "en": "english", "es": "spanish", "de": "german", "fr": "french", "it": "italian", "ru": "russian",
    "ja": "japanese", "zh": "chinese",
}  # fmt: skip

# What LASER's tasks/mldoc/mldoc.sh changes in the texts before its network reads their vectors.
AS_LASER_READS_IT = ((r" Co \.", " Co."), (r" Inc \. ", " Inc. "), (r"\([cC]\) Reuters Limited 199[0-9]\.", ""))


def convert(task: ClassificationTask, output: Path) -> None:
    for language, part in parts(task):
        name = LANGUAGES.get(language)
        if name is None:
            raise ValueError(f"MLDoc has no language {language!r}; it has {', '.join(LANGUAGES)}")
        file = Path(task.data) / f"{name}.{'train.1000' if part == 'train' else part}"
        text = "".join(f"{line}\n" for _, line in lines(file))
        for pattern, replacement in AS_LASER_READS_IT if task.classifier == "mlp" else ():
            text = re.sub(pattern, replacement, text)
        write_text(output / f"{language}.{part}.tsv", text)
