"""The sentence vectors of the documents of triples, computed once, because a frozen sentence encoder always gives the
same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from datasets import Dataset, concatenate_datasets
from torch import Tensor

from hmde.common.files import locked, new_array, partial_of
from hmde.common.fingerprints import fingerprint, fingerprint_of_code, fingerprint_of_weights
from hmde.common.progress import progress_bar
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.packing_hmde import padded_batches
from training.data.articles import row_of

# Documents between two savings, so no more is lost when a process is killed.
DOCUMENTS_AT_ONCE = 256
MAX_TOKENS_PER_BATCH = 16_384


class SentenceVectors:
    """Sentence vectors on disk, mapped into memory. Each document has room for `max_sentences`.

    Args:
        folder: `vectors.npy` (documents, max_sentences, hidden), float32, and `lengths.npy` (documents, max_sentences),
            int32, the tokens of each sentence, 0 where there is none.
        articles: article tables by language.
        rows: (documents,), ascending, those of the documents, counted through all tables.
    """

    def __init__(self, folder: Path, articles: dict[str, Dataset], rows: np.ndarray) -> None:
        self.vectors = np.load(folder / "vectors.npy", mmap_mode="r")
        self.lengths = np.load(folder / "lengths.npy", mmap_mode="r")
        self.articles = articles
        self.rows = rows
        self.first_rows = dict(zip(articles, accumulate(map(len, articles.values()), initial=0)))

    def batch(self, documents: list[tuple[str, str]]) -> dict[str, Tensor]:
        """The rows of some documents.

        Args:
            documents: language and concept of each.

        Returns:
            `sentence_embeddings` (documents, sentences, hidden), and `sentence_lengths` and `attention_mask`, both
            (documents, sentences).
        """
        in_tables = [self.first_rows[language] + row_of(self.articles, language, name) for language, name in documents]
        rows = np.searchsorted(self.rows, in_tables)
        lengths = torch.from_numpy(self.lengths[rows])
        attention_mask = (lengths > 0).long()
        num_sentences = int(attention_mask.sum(dim=1).max())
        return {
            "sentence_embeddings": torch.from_numpy(np.stack([self.vectors[row, :num_sentences] for row in rows])),
            "sentence_lengths": lengths[:, :num_sentences],
            "attention_mask": attention_mask[:, :num_sentences],
        }


def sentence_vectors(
    folder: Path,
    accelerator: Accelerator,
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    articles: dict[str, Dataset],
    rows: np.ndarray,
    corpus: str,
) -> SentenceVectors:
    """The sentence vectors of some documents, read from `folder` where they have been kept for the same sentence
    encoder, tokenizer, corpus, documents and precision, and otherwise computed, each process taking its share.

    If two runs need the same vectors, one computes them and the other waits. A run that is killed while it computes
    loses the last few documents; the next one goes on from there.

    Args:
        folder: gets a folder named by a fingerprint.
        articles: article tables by language.
        rows: (documents,), ascending, those of the documents, counted through all tables.
        corpus: fingerprint of the tables.

    Raises:
        OSError: the disk has no room for them.
    """
    documents = f"{corpus} {hashlib.sha256(rows.tobytes()).hexdigest()}"
    whole = folder / fingerprint_of_vectors(model, tokenizer, documents, accelerator.mixed_precision)
    with locked(whole) if accelerator.is_main_process else nullcontext():
        accelerator.wait_for_everyone()  # until the main process has the lock
        if not whole.exists():
            partial = partial_of(whole)
            shape = (len(rows), tokenizer.max_sentences, model.config.hidden_size)
            if accelerator.is_main_process and not (partial / "lengths.npy").exists():
                partial.mkdir(parents=True, exist_ok=True)
                new_array(partial / "vectors.npy", shape, np.float32)
                new_array(partial / "lengths.npy", shape[:2], np.int32)
            accelerator.wait_for_everyone()
            fill(partial, accelerator, model, tokenizer, articles, rows)
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                os.replace(partial, whole)
            accelerator.wait_for_everyone()
    return SentenceVectors(whole, articles, rows)


def fill(
    folder: Path,
    accelerator: Accelerator,
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    articles: dict[str, Dataset],
    rows: np.ndarray,
) -> None:
    """Encode this process's share of the documents that are not in the arrays of `folder` yet."""
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "r+")
    lengths = np.lib.format.open_memmap(folder / "lengths.npy", "r+")
    missing = np.flatnonzero(lengths[:, 0] == 0)
    accelerator.wait_for_everyone()  # until every process knows what is missing
    share = missing[accelerator.process_index :: accelerator.num_processes]
    documents = concatenate_datasets([table.select_columns(["language", "text"]) for table in articles.values()])
    model.to(accelerator.device)
    bar = progress_bar("sentence vectors" if accelerator.is_main_process else "", len(share), unit="document")
    with bar, torch.no_grad(), accelerator.autocast():
        for first in range(0, len(share), DOCUMENTS_AT_ONCE):
            chosen = share[first : first + DOCUMENTS_AT_ONCE]
            read = documents[rows[chosen]]
            encoded = encode_sentences(model, tokenizer, read["text"], read["language"])
            new_lengths = np.zeros_like(lengths[chosen])
            for index, sentence_embeddings, sentence_lengths in encoded:
                vectors[chosen[index], : len(sentence_embeddings)] = sentence_embeddings.float()
                new_lengths[index, : len(sentence_lengths)] = sentence_lengths
            vectors.flush()
            lengths[chosen] = new_lengths  # a document that has lengths has its vectors
            bar.update(len(chosen))
    lengths.flush()


def encode_sentences(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, texts: list[str], languages: list[str]
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yields, for each text in any order, its index, its sentence vectors (sentences, hidden) and the tokens of each
    sentence (sentences,), both on the CPU."""
    rows = tokenizer(texts, language=languages) if texts else {"input_ids": [], "sentence_ids": []}
    for batch, inputs in padded_batches(tokenizer, rows, MAX_TOKENS_PER_BATCH):
        sentences, vectors = model.hmde.encode_sentences(**inputs.to(model.device))
        counts = sentences.document.bincount().tolist()
        yield from zip(batch.tolist(), vectors.cpu().split(counts), sentences.length.cpu().split(counts))


def fingerprint_of_vectors(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: str, precision: str
) -> str:
    """Hashes all that the sentence vectors of some documents depend on.

    Args:
        documents: a name for them.
        precision: the mixed precision in which they are computed.
    """
    options = (
        "max_sentences",
        "max_sentence_length",
        "min_sentence_bytes",
        "segmentation",
        "long_sentences",
        "sentence_prompt",
    )
    return fingerprint(
        documents,
        precision,
        fingerprint_of_code(),
        model.config.sentence_pooling,
        model.config.sentence_modules,
        model.config.passage_length,
        tokenizer.backend_tokenizer.to_str(),
        [getattr(tokenizer, option) for option in options],
        fingerprint_of_weights(model.hmde.sentence_encoder.state_dict().items()),
        fingerprint_of_weights(model.hmde.sentence_modules.state_dict().items()),
    )
