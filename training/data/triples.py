"""Triples of documents, read from a corpus folder: anchor, positive, hard negatives, and a query to go with them."""

from __future__ import annotations

import random
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import load_dataset

from modeling_hmde.segmentation_hmde import replace_surrogates, sentence_spans
from training.data.articles import fingerprint_of_corpus, load_articles, row_of
from training.data.queries import QueryDraw

# Where a triple has the concept and the language of each role's document. A positive is the anchor's concept in another
# language, and the positive's hard negative is in the positive's language.
CONCEPT_OF = {
    "anchor": "concept_id",
    "positive": "concept_id",
    "negative": "negative_id",
    "positive_negative": "positive_negative_id",
}
LANGUAGE_OF = {
    "anchor": "anchor_language",
    "positive": "positive_language",
    "negative": "anchor_language",
    "positive_negative": "positive_language",
}


class Triples(torch.utils.data.Dataset):
    """The triples of one split of a corpus, texts looked up in its article tables; all of it memory-mapped.

    Args:
        folder: what `python -m training.corpus` wrote.
        split: train, dev or test.
        symmetric: keep only triples that have a hard negative for the positive too.
        queries: how a query is drawn for each triple.
        seed: of these draws.

    Raises:
        ValueError: the folder is no corpus, has no such triple, or lacks articles that its triples name.
    """

    def __init__(
        self,
        folder: str | Path,
        split: str,
        *,
        symmetric: bool = False,
        queries: QueryDraw | None = None,
        seed: int = 0,
    ) -> None:
        self.folder = folder = Path(folder)
        if not (folder / "triples.parquet").is_file():
            raise ValueError(f"{folder} has no triples.parquet; make a corpus with python -m training.corpus")
        triples = load_dataset("parquet", data_files=str(folder / "triples.parquet"), split="train")
        wanted = pc.equal(triples.data.column("split"), split)
        if symmetric:
            wanted = pc.and_(wanted, triples.data.column("positive_negative_id").is_valid())
        self.triples = triples.select(np.flatnonzero(wanted))
        if not len(self.triples):
            raise ValueError(f"{folder / 'triples.parquet'} has no triple of split {split!r}")
        self.articles = load_articles(folder)
        self._check_articles()
        self.roles = [role for role in CONCEPT_OF if symmetric or role != "positive_negative"]
        self.queries = queries or QueryDraw()
        self.seed = seed
        self.epoch = 0

    def _check_articles(self) -> None:
        languages = self._columns("anchor_language", "positive_language")
        for language in sorted({language for column in languages.columns for language in column.unique().to_pylist()}):
            if language not in self.articles:
                raise ValueError(
                    f"{self.folder / 'articles' / language}.parquet has no article, but triples.parquet beside it has "
                    f"triples of language {language!r}; make the corpus anew with python -m training.corpus"
                )

    def __len__(self) -> int:
        return len(self.triples)

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the triples and the articles, word for word."""
        return fingerprint_of_corpus(self.folder)

    def _columns(self, *names: str) -> pa.Table:
        return self.triples.select_columns(list(names)).with_format("arrow")[:]

    def language_pairs(self) -> np.ndarray:
        """(triples,), an id for each pair of an anchor's language and a positive's."""
        pairs = pc.binary_join_element_wise(*self._columns("anchor_language", "positive_language").columns, "-")
        return pc.index_in(pairs, pairs.unique().sort()).to_numpy()

    def rows_of_articles(self) -> np.ndarray:
        """(documents,), ascending: the rows, counted through all article tables, of the documents of the triples."""
        triples = self._columns(*{*CONCEPT_OF.values(), *LANGUAGE_OF.values()})
        named = []
        for language, table in self.articles.items():
            concepts = [
                triples[CONCEPT_OF[role]].filter(pc.equal(triples[LANGUAGE_OF[role]], language)) for role in self.roles
            ]
            wanted = pa.chunked_array([chunk for column in concepts for chunk in column.chunks], pa.string())
            named.append(pc.is_in(table.data.column("concept_id"), wanted.unique()).to_numpy())
        return np.flatnonzero(np.concatenate(named))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The triple, with the article of each role under its name, and the query."""
        triple = self.triples[index]
        articles = {role: self._article(triple[CONCEPT_OF[role]], triple[LANGUAGE_OF[role]]) for role in self.roles}
        draw = random.Random(f"{self.seed} {self.epoch} {index}")
        source = draw.choice(["title", "sentence"]) if self.queries.source == "both" else self.queries.source
        role = draw.choice(["anchor", "positive"]) if self.queries.language == "both" else self.queries.language
        article = articles[role]
        query = article["title"] if source == "title" else _sentence_of(article, draw)
        return triple | articles | {"query": query}

    def _article(self, concept_id: str, language: str) -> dict[str, Any]:
        return self.articles[language][row_of(self.articles, language, concept_id)]


def _sentence_of(article: dict[str, Any], draw: random.Random) -> str:
    text = replace_surrogates(article["text"])
    begin, end = draw.choice(list(sentence_spans(text, article["language"])))
    return text[begin:end]
