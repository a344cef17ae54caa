"""The article tables of a corpus, memory-mapped: however large, they take no memory of a process."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from datasets import Dataset, load_dataset

from hmde.common.fingerprints import digest, fingerprint


def load_articles(folder: Path) -> dict[str, Dataset]:
    """The article tables of a corpus by language, without the languages that have no article.

    Raises:
        ValueError: no language has one.
    """
    articles = {
        path.stem: load_dataset("parquet", data_files=str(path), split="train")
        for path in sorted((folder / "articles").glob("*.parquet"))
        if parquet.read_metadata(path).num_rows
    }
    if not articles:
        raise ValueError(
            f"{folder} has no articles/*.parquet with an article; make a corpus with python -m training.corpus"
        )
    return articles


def rows_of_split(table: Dataset, split: str) -> Dataset:
    """The rows of a table that belong to train, dev or test."""
    return table.select(np.flatnonzero(pc.equal(table.data.column("split"), split)))


def row_of(articles: dict[str, Dataset], language: str, concept_id: str) -> int:
    """The row of a concept in the article table of a language, found by bisection.

    Raises:
        ValueError: it is not there.
    """
    concepts = articles[language].data.column("concept_id")
    row = bisect_left(range(len(concepts)), concept_id, key=lambda index: concepts[index].as_py())
    if row == len(concepts) or concepts[row].as_py() != concept_id:
        raise ValueError(
            f"the articles of language {language!r} lack concept {concept_id}, or are not in the order of their "
            "concepts; make the corpus anew with python -m training.corpus"
        )
    return row


def fingerprint_of_corpus(folder: Path) -> str:
    """Hashes the triples and the articles, word for word."""
    tables = [folder / "triples.parquet", *sorted((folder / "articles").glob("*.parquet"))]
    return fingerprint(*((path.name, digest(path)) for path in tables))
