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
from torch.nn.utils.rnn import pad_sequence

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
    """Sentence vectors on disk, mapped into memory, those of one document after those of another.

    Args:
        folder: `vectors.npy` (sentences, hidden), float16, `lengths.npy` (sentences,), int32, the tokens of each
            sentence, and `bounds.npy` (documents + 1,), int64, the first sentence of each document, then the count of
            all.
        articles: article tables by language.
        rows: (documents,), ascending, those of the documents, counted through all tables.
    """

    def __init__(self, folder: Path, articles: dict[str, Dataset], rows: np.ndarray) -> None:
        self.vectors = np.load(folder / "vectors.npy", mmap_mode="r")
        self.lengths = np.load(folder / "lengths.npy", mmap_mode="r")
        self.bounds = np.load(folder / "bounds.npy")
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
        places = [slice(*self.bounds[row : row + 2]) for row in rows]
        vectors, lengths = (
            pad_sequence([torch.from_numpy(kept[place].copy()) for place in places], batch_first=True)
            for kept in (self.vectors, self.lengths)
        )
        return {
            "sentence_embeddings": vectors.float(),
            "sentence_lengths": lengths,
            "attention_mask": (lengths > 0).long(),
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
    name = f"{corpus} {hashlib.sha256(rows.tobytes()).hexdigest()}"
    whole = folder / fingerprint_of_vectors(model, tokenizer, name, accelerator.mixed_precision)
    with locked(whole) if accelerator.is_main_process else nullcontext():
        accelerator.wait_for_everyone()  # until the main process has the lock
        if not whole.exists():
            partial = partial_of(whole)
            documents = concatenate_datasets(
                [table.select_columns(["language", "text"]) for table in articles.values()]
            )
            if accelerator.is_main_process and not (partial / "lengths.npy").exists():
                make_room(partial, model.config.hidden_size, count_sentences(tokenizer, documents, rows))
            accelerator.wait_for_everyone()
            fill(partial, accelerator, model, tokenizer, documents, rows)
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                os.replace(partial, whole)
            accelerator.wait_for_everyone()
    return SentenceVectors(whole, articles, rows)


def count_sentences(tokenizer: HMDETokenizer, documents: Dataset, rows: np.ndarray) -> np.ndarray:
    """(documents,), int64, of each row the sentences that the model reads."""
    counts: list[int] = []
    with progress_bar("counting sentences", len(rows), unit="document") as bar:
        for first in range(0, len(rows), DOCUMENTS_AT_ONCE):
            read = documents[rows[first : first + DOCUMENTS_AT_ONCE]]
            counts += [max(ids) + 1 for ids in tokenizer(read["text"], language=read["language"])["sentence_ids"]]
            bar.update(len(read["text"]))
    return np.array(counts, dtype=np.int64)


def make_room(folder: Path, hidden_size: int, counts: np.ndarray) -> None:
    """Write the files of `SentenceVectors`, with zeros for what is not known yet.

    Args:
        counts: (documents,), the sentences of each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "bounds.npy", np.concatenate([[0], counts.cumsum()]))
    new_array(folder / "vectors.npy", (int(counts.sum()), hidden_size), np.float16)
    new_array(folder / "lengths.npy", (int(counts.sum()),), np.int32)


def fill(
    folder: Path,
    accelerator: Accelerator,
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    documents: Dataset,
    rows: np.ndarray,
) -> None:
    """Encode this process's share of the documents that are not in the arrays of `folder` yet."""
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "r+")
    lengths = np.lib.format.open_memmap(folder / "lengths.npy", "r+")
    bounds = np.load(folder / "bounds.npy")
    missing = np.flatnonzero(lengths[bounds[:-1]] == 0)
    accelerator.wait_for_everyone()  # until every process knows what is missing
    share = missing[accelerator.process_index :: accelerator.num_processes]
    model.to(accelerator.device)
    bar = progress_bar("sentence vectors" if accelerator.is_main_process else "", len(share), unit="document")
    with bar, torch.no_grad(), accelerator.autocast():
        for first in range(0, len(share), DOCUMENTS_AT_ONCE):
            chosen = share[first : first + DOCUMENTS_AT_ONCE]
            read = documents[rows[chosen]]
            new_lengths: list[tuple[slice, Tensor]] = []
            encoded = encode_sentences(model, tokenizer, read["text"], read["language"])
            for index, sentence_embeddings, sentence_lengths in encoded:
                place = slice(*bounds[chosen[index] : chosen[index] + 2])
                vectors[place] = sentence_embeddings.half()
                new_lengths.append((place, sentence_lengths))
            vectors.flush()
            for place, sentence_lengths in new_lengths:
                lengths[place] = sentence_lengths  # a document that has lengths has its vectors
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
