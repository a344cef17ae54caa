"""From a corpus folder to batches of tokens: triples of documents, and queries to go with them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow.parquet as parquet
import torch
from datasets import Dataset, load_dataset
from torch import Tensor

from modeling_hmde import HMDETokenizer
from modeling_hmde.segmentation_hmde import replace_surrogates, sentence_spans

QuerySource = Literal["title", "sentence", "both"]


class Batch(NamedTuple):
    """Triples ready for the model. `documents` holds four times as many rows as there are triples, three without a
    second hard negative: all anchors, all positives, all negatives, all negatives of the positives."""

    documents: dict[str, Tensor]  # input_ids and attention_mask, (documents, tokens)
    queries: dict[str, Tensor]  # input_ids and attention_mask, (triples, tokens)
    concepts: Tensor  # (triples,)
    negative_concepts: Tensor  # (triples,)
    positive_negative_concepts: Tensor  # (triples,)


class Triples(torch.utils.data.Dataset):
    """The triples of one split of a corpus, texts looked up in its article tables.

    Args:
        folder: what `python -m training.corpus` wrote.
        split: train, dev or test.
        both_sides: keep only triples that have a hard negative for the positive too.
        query_source: what stands for a query: the anchor's title, a sentence of the anchor drawn anew in every epoch,
            or either with equal chance. Never the positive's own words: the query is in another language.
        seed: of the draws of queries.

    Raises:
        ValueError: the folder is no corpus, or has no such triple.
    """

    def __init__(
        self, folder: str | Path, split: str, *, both_sides: bool, query_source: QuerySource = "both", seed: int = 0
    ) -> None:
        folder = Path(folder)
        if not (folder / "triples.parquet").is_file():
            raise ValueError(f"{folder} has no triples.parquet; make a corpus with python -m training.corpus")
        rows = parquet.read_table(folder / "triples.parquet", filters=[("split", "=", split)])
        self.triples = Dataset(rows)
        if both_sides:
            self.triples = self.triples.filter(
                lambda found: [name is not None for name in found], input_columns="positive_negative_id", batched=True
            )
        if not len(self.triples):
            raise ValueError(f"{folder / 'triples.parquet'} has no triple of split {split!r}")
        self.articles = load_articles(folder)
        self.places = {
            language: {concept: place for place, concept in enumerate(table["concept_id"])}
            for language, table in self.articles.items()
        }
        self.query_source = query_source
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.triples)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def article(self, concept_id: str, language: str) -> dict[str, Any]:
        return self.articles[language][self.places[language][concept_id]]

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The triple with the texts of its documents."""
        triple = self.triples[index]
        anchor = self.article(triple["concept_id"], triple["anchor_language"])
        second = triple["positive_negative_id"]
        return triple | {
            "anchor": anchor["text"],
            "positive": self.article(triple["concept_id"], triple["positive_language"])["text"],
            "negative": self.article(triple["negative_id"], triple["anchor_language"])["text"],
            "positive_negative": second and self.article(second, triple["positive_language"])["text"],
            "query": self._query(anchor, index),
        }

    def _query(self, anchor: dict[str, Any], index: int) -> str:
        draw = random.Random(f"{self.seed} {self.epoch} {index}")
        source = draw.choice(["title", "sentence"]) if self.query_source == "both" else self.query_source
        if source == "title":
            return anchor["title"]
        text = replace_surrogates(anchor["text"])
        begin, end = draw.choice(list(sentence_spans(text, anchor["language"])))
        return text[begin:end]


def load_articles(folder: Path) -> dict[str, Dataset]:
    """The article tables of a corpus by language, memory-mapped."""
    return {
        path.stem: load_dataset("parquet", data_files=str(path), split="train")
        for path in sorted((folder / "articles").glob("*.parquet"))
    }


def collate(triples: list[dict[str, Any]], tokenizer: HMDETokenizer, both_sides: bool) -> Batch:
    """Tokenize the documents and queries of some triples."""
    roles = {"anchor": "anchor", "positive": "positive", "negative": "anchor"}
    if both_sides:
        roles["positive_negative"] = "positive"
    texts = [triple[role] for role in roles for triple in triples]
    languages = [triple[f"{side}_language"] for side in roles.values() for triple in triples]
    documents = tokenizer(texts, language=languages, padding=True, return_tensors="pt")
    queries = tokenizer([triple["query"] for triple in triples], as_queries=True, padding=True, return_tensors="pt")
    numbers: dict[str | None, int] = {}
    ids = [
        torch.tensor([numbers.setdefault(triple[name], len(numbers)) for triple in triples])
        for name in ("concept_id", "negative_id", "positive_negative_id")
    ]
    return Batch(dict(documents), dict(queries), *ids)
