"""The sentence vectors of training articles, computed once: what a frozen sentence encoder makes of them never
changes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from accelerate import Accelerator
from datasets import Dataset
from torch import Tensor
from tqdm.auto import tqdm

from evaluation.saved_models import fingerprint_of_code
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.packing_hmde import bucket_by_length
from training.articles import row_of

DOCUMENTS_PER_TOKENIZATION = 1024
MAX_TOKENS_PER_BATCH = 16_384


class SentenceVectors:
    """Sentence vectors on disk, mapped into memory; each document has room for `max_sentences`, empty room costs none.

    Args:
        folder: `vectors.npy` (documents, max_sentences, hidden), float32, and `lengths.npy` (documents, max_sentences),
            the tokens of each sentence, 0 where there is none and all through what is no training article.
        articles: article tables by language; the documents follow each other as they do there.
    """

    def __init__(self, folder: Path, articles: dict[str, Dataset]) -> None:
        self.vectors = np.load(folder / "vectors.npy", mmap_mode="r")
        self.lengths = np.load(folder / "lengths.npy", mmap_mode="r")
        self.articles = articles
        self.first_rows = dict(zip(articles, accumulate(map(len, articles.values()), initial=0)))

    def batch(self, documents: list[tuple[str, str]]) -> dict[str, Tensor]:
        """`sentence_embeddings` (documents, sentences, hidden), and `sentence_lengths` and `attention_mask`, both
        (documents, sentences)."""
        rows = [self.first_rows[language] + row_of(self.articles, language, concept) for language, concept in documents]
        lengths = torch.from_numpy(self.lengths[rows])
        attention_mask = (lengths > 0).long()
        most = int(attention_mask.sum(dim=1).max())
        return {
            "sentence_embeddings": torch.from_numpy(np.stack([self.vectors[row, :most] for row in rows])),
            "sentence_lengths": lengths[:, :most],
            "attention_mask": attention_mask[:, :most],
        }


def sentence_vectors(
    folder: Path,
    accelerator: Accelerator,
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    articles: dict[str, Dataset],
    corpus: str,
) -> SentenceVectors:
    """The sentence vectors of the training articles, read from `folder` where they have been kept for the same sentence
    encoder, tokenizer and corpus, and otherwise computed, each process taking its share.

    Args:
        folder: gets a folder named by a fingerprint.
        articles: article tables by language.
        corpus: fingerprint of these.
    """
    num_documents = sum(map(len, articles.values()))
    name = fingerprint(model, tokenizer, corpus)
    whole, partial = folder / name, folder / f"{name}.partial"
    if not whole.exists():
        shape = (num_documents, tokenizer.max_sentences, model.config.hidden_size)
        if accelerator.is_main_process:
            partial.mkdir(parents=True, exist_ok=True)
            np.lib.format.open_memmap(partial / "vectors.npy", "w+", np.float32, shape).flush()
            np.lib.format.open_memmap(partial / "lengths.npy", "w+", np.int32, shape[:2]).flush()
        accelerator.wait_for_everyone()
        vectors = np.lib.format.open_memmap(partial / "vectors.npy", "r+")
        lengths = np.lib.format.open_memmap(partial / "lengths.npy", "r+")
        splits = pa.chunked_array([chunk for table in articles.values() for chunk in table.data.column("split").chunks])
        share = np.flatnonzero(pc.equal(splits, "train"))[accelerator.process_index :: accelerator.num_processes]
        offsets = np.cumsum([0, *(len(table) for table in articles.values())])
        languages = list(articles)

        def read(row: int) -> tuple[str, str]:
            place = int(np.searchsorted(offsets, row, side="right")) - 1
            return articles[languages[place]][int(row - offsets[place])]["text"], languages[place]

        with accelerator.autocast():
            encode(model.to(accelerator.device), tokenizer, share, read, vectors, lengths)
        vectors.flush()
        lengths.flush()
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            os.replace(partial, whole)
        accelerator.wait_for_everyone()
    return SentenceVectors(whole, articles)


@torch.no_grad()
def encode(
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    share: np.ndarray,
    read: Callable[[int], tuple[str, str]],
    vectors: np.ndarray,
    lengths: np.ndarray,
) -> None:
    """Fill the rows of `share`. read: from a row to its text and language."""
    for first in tqdm(range(0, len(share), DOCUMENTS_PER_TOKENIZATION), desc="sentence vectors", unit="k documents"):
        numbers = share[first : first + DOCUMENTS_PER_TOKENIZATION]
        texts, languages = zip(*map(read, numbers.tolist()))
        for place, found, found_lengths in encode_sentences(model, tokenizer, texts, languages):
            vectors[numbers[place], : len(found)] = found.float()
            lengths[numbers[place], : len(found)] = found_lengths


def encode_sentences(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, texts: Sequence[str], languages: Sequence[str]
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Of each text, in any order: its place, its sentence vectors (sentences, hidden) and the tokens of each sentence
    (sentences,), both on the CPU."""
    rows = tokenizer(list(texts), language=list(languages))["input_ids"] if texts else []
    for batch in bucket_by_length(torch.tensor([len(row) for row in rows]), MAX_TOKENS_PER_BATCH):
        inputs = tokenizer.pad({"input_ids": [rows[place] for place in batch]}, return_tensors="pt")
        sentences, vectors = model.hmde.encode_sentences(**inputs.to(model.device))
        numbers = sentences.document.bincount().tolist()
        yield from zip(batch.tolist(), vectors.cpu().split(numbers), sentences.length.cpu().split(numbers))


def fingerprint(model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, corpus: str) -> str:
    """Of all that the sentence vectors depend on."""
    digest = hashlib.sha256(f"{corpus} {fingerprint_of_code()}".encode())
    digest.update(
        f"{model.config.sentence_pooling} {model.config.passage_length} {tokenizer.backend_tokenizer.to_str()}".encode()
    )
    options = ("max_sentences", "max_sentence_length", "segmentation", "long_sentences", "sentence_prompt")
    digest.update(json.dumps([getattr(tokenizer, option) for option in options]).encode())
    for name, weight in model.hmde.sentence_encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
