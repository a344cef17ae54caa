"""From a corpus folder to batches of tokens: triples of documents, and queries to go with them."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import load_dataset
from torch import Tensor

from modeling_hmde import HMDETokenizer
from modeling_hmde.segmentation_hmde import replace_surrogates, sentence_spans
from training.articles import load_articles, row_of
from training.sentence_vectors import SentenceVectors

QuerySource = Literal["title", "sentence", "both"]


class Batch(NamedTuple):
    """Triples ready for the model. `documents` holds four times as many rows as there are triples, three without a
    second hard negative: all anchors, all positives, all negatives, all negatives of the positives."""

    documents: dict[str, Tensor]  # input_ids and attention_mask, (documents, tokens), or see SentenceVectors
    queries: dict[str, Tensor]  # input_ids and attention_mask, (triples, tokens)
    concepts: Tensor  # (triples,), or (triples, 2) of mixed documents
    negative_concepts: Tensor  # of the same shape
    positive_negative_concepts: Tensor  # of the same shape
    names: list[str]  # (triples,), for messages


class Triples(torch.utils.data.Dataset):
    """The triples of one split of a corpus, texts looked up in its article tables; all of it memory-mapped.

    Args:
        folder: what `python -m training.corpus` wrote.
        split: train, dev or test.
        both_sides: keep only triples that have a hard negative for the positive too.
        query_source: what stands for a query: the anchor's title, a sentence of the anchor drawn anew in every epoch,
            or either with equal chance. Never the positive's own words: the query is in another language.
        seed: of the draws of queries.

    Raises:
        ValueError: the folder is no corpus, has no such triple, or lacks articles that its triples name.
    """

    def __init__(
        self, folder: str | Path, split: str, *, both_sides: bool, query_source: QuerySource = "both", seed: int = 0
    ) -> None:
        folder = Path(folder)
        if not (folder / "triples.parquet").is_file():
            raise ValueError(f"{folder} has no triples.parquet; make a corpus with python -m training.corpus")
        triples = load_dataset("parquet", data_files=str(folder / "triples.parquet"), split="train")
        wanted = pc.equal(triples.data.column("split"), split)
        if both_sides:
            wanted = pc.and_(wanted, triples.data.column("positive_negative_id").is_valid())
        self.triples = triples.select(np.flatnonzero(wanted))
        if not len(self.triples):
            raise ValueError(f"{folder / 'triples.parquet'} has no triple of split {split!r}")
        self.articles = load_articles(folder)
        self._check_articles(folder)
        self.query_source = query_source
        self.seed = seed
        self.epoch = 0

    def _check_articles(self, folder: Path) -> None:
        languages = self._columns("anchor_language", "positive_language")
        for language in sorted({language for column in languages.columns for language in column.unique().to_pylist()}):
            if language not in self.articles:
                raise ValueError(
                    f"{folder / 'articles' / language}.parquet has no article, but {folder / 'triples.parquet'} has "
                    f"triples of language {language!r}; make the corpus anew with python -m training.corpus"
                )

    def __len__(self) -> int:
        return len(self.triples)

    def _columns(self, *names: str) -> pa.Table:
        return self.triples.select_columns(list(names)).with_format("arrow")[:]

    def language_pairs(self) -> np.ndarray:
        """(triples,), a number for each pair of an anchor's language and a positive's."""
        pairs = pc.binary_join_element_wise(*self._columns("anchor_language", "positive_language").columns, "-")
        return pc.index_in(pairs, pairs.unique().sort()).to_numpy()

    def lengths(self) -> np.ndarray:
        """(triples,), characters of anchor, positive and hard negative together."""
        triples = self._columns("concept_id", "negative_id", "anchor_language", "positive_language")
        anchor, positive = ("concept_id", "anchor_language"), ("concept_id", "positive_language")
        lengths = np.zeros(len(triples), np.int64)
        for language, table in self.articles.items():
            characters = pc.utf8_length(table.data.column("text"))
            for concept_id, language_of in (anchor, positive, ("negative_id", "anchor_language")):
                here = pc.equal(triples[language_of], language)
                rows = pc.index_in(triples[concept_id].filter(here), table.data.column("concept_id"))
                lengths[here.to_numpy()] += characters.take(rows).to_numpy()
        return lengths

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def article(self, concept_id: str, language: str) -> dict[str, Any]:
        return self.articles[language][row_of(self.articles, language, concept_id)]

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
            "draw": f"{self.seed} {self.epoch} {index}",
        }

    def _query(self, anchor: dict[str, Any], index: int) -> str:
        draw = random.Random(f"{self.seed} {self.epoch} {index}")
        source = draw.choice(["title", "sentence"]) if self.query_source == "both" else self.query_source
        if source == "title":
            return anchor["title"]
        text = replace_surrogates(anchor["text"])
        begin, end = draw.choice(list(sentence_spans(text, anchor["language"])))
        return text[begin:end]


def collate(
    triples: list[dict[str, Any]],
    tokenizer: HMDETokenizer,
    both_sides: bool,
    mixup: bool = False,
    sentence_vectors: SentenceVectors | None = None,
) -> Batch:
    """Tokenize the documents and queries of some triples.

    Args:
        both_sides: whether the positives have hard negatives too.
        mixup: lay each document end to end with the one of the same role of another triple (see `mix`).
        sentence_vectors: where the documents' sentences are kept, encoded; then no document is tokenized.
    """
    roles = {"anchor": "anchor", "positive": "positive", "negative": "anchor"}
    if both_sides:
        roles["positive_negative"] = "positive"
    languages = [triple[f"{side}_language"] for side in roles.values() for triple in triples]
    if sentence_vectors is not None:
        names = {"anchor": "concept_id", "positive": "concept_id", "negative": "negative_id"}
        names["positive_negative"] = "positive_negative_id"
        found = [triple[names[role]] for role in roles for triple in triples]
        documents = sentence_vectors.batch(list(zip(languages, found)))
    else:
        texts = [triple[role] for role in roles for triple in triples]
        rows = tokenizer(texts, language=languages)["input_ids"]
        if mixup:
            rows = mix(rows, len(triples), tokenizer, random.Random(triples[0]["draw"]))
        documents = dict(tokenizer.pad({"input_ids": rows}, return_tensors="pt"))
    queries = tokenizer([triple["query"] for triple in triples], as_queries=True, padding=True, return_tensors="pt")
    ids = [
        torch.tensor([concept_number(triple[name]) for triple in triples])
        for name in ("concept_id", "negative_id", "positive_negative_id")
    ]
    if mixup:
        ids = [torch.stack([numbers, numbers.roll(-1)], dim=1) for numbers in ids]
    described = [
        f"{triple['concept_id']} ({triple['anchor_language']}, {triple['positive_language']}; hard negative "
        f"{triple['negative_id']})"
        for triple in triples
    ]
    concepts, negative_concepts, positive_negative_concepts = ids
    return Batch(documents, dict(queries), concepts, negative_concepts, positive_negative_concepts, described)


def mix(rows: list[list[int]], num_triples: int, tokenizer: HMDETokenizer, draw: random.Random) -> list[list[int]]:
    """Mixup contrast (InfoXLM, section 3.2): every document is laid end to end with that of the next triple.

    In an order drawn for each document, so that <c1 d1, c2 d2> and <c1 d1, d2 c2> both occur. Each of the two keeps its
    first half of `max_sentences`, so that both are read.

    Args:
        rows: token ids, all triples' anchors, then all positives, and so on.
        num_triples: of the batch.
    """
    halves = [first_sentences(row, tokenizer.start_token_id, max(1, tokenizer.max_sentences // 2)) for row in rows]
    mixed = []
    for place, one in enumerate(halves):
        role, triple = divmod(place, num_triples)
        other = halves[role * num_triples + (triple + 1) % num_triples]
        mixed.append(one + other if draw.random() < 0.5 else other + one)
    return mixed


def first_sentences(row: list[int], start_token_id: int, number: int) -> list[int]:
    """
    >>> first_sentences([7, 1, 7, 2, 7, 3], start_token_id=7, number=2)
    [7, 1, 7, 2]
    """
    starts = [place for place, token in enumerate(row) if token == start_token_id]
    return row[: starts[number]] if len(starts) > number else row


def concept_number(concept_id: str | None) -> int:
    """A number for a concept that is the same in every batch, process and run; 0 for none."""
    if concept_id is None:
        return 0
    return int.from_bytes(hashlib.blake2b(concept_id.encode(), digest_size=8).digest(), "little", signed=True)
