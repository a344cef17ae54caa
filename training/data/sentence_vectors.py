"""The sentence vectors of the documents of triples, computed once, because a frozen sentence encoder always gives the
same."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from datasets import Dataset, concatenate_datasets
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from hmde.common.files import file_written_whole, locked
from hmde.common.fingerprints import fingerprint, fingerprint_of_code, fingerprint_of_weights
from hmde.common.progress import progress_bar
from hmde.common.saved_models import tokenizer_options
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.packing_hmde import padded_batches
from training.data.articles import row_of

DOCUMENTS_IN_A_FILE = 256  # no more is lost when a process is killed
MAX_TOKENS_PER_BATCH = 16_384


class SentenceVectors:
    """Sentence vectors on disk, in files of DOCUMENTS_IN_A_FILE documents each.

    Args:
        folder: files as `encode_sentences` makes them.
        articles: article tables by language.
        rows: (documents,), ascending, those of the documents, counted through all tables.
    """

    def __init__(self, folder: Path, articles: dict[str, Dataset], rows: np.ndarray) -> None:
        self.folder = folder
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
        kept = map(self._read, np.searchsorted(self.rows, in_tables).tolist())
        vectors, lengths = (pad_sequence(list(parts), batch_first=True) for parts in zip(*kept))
        return {
            "sentence_embeddings": vectors.float(),
            "sentence_lengths": lengths,
            "attention_mask": (lengths > 0).long(),
        }

    def _read(self, document: int) -> tuple[Tensor, Tensor]:
        """The vectors (sentences, hidden) and the lengths (sentences,) of a document."""
        number, place = divmod(document, DOCUMENTS_IN_A_FILE)
        with safe_open(file_of(self.folder, number), "pt") as file:
            begin, end = file.get_slice("bounds")[place : place + 2].tolist()
            return file.get_slice("vectors")[begin:end], file.get_slice("lengths")[begin:end]


def file_of(folder: Path, number: int) -> Path:
    return folder / f"{number:06}.safetensors"


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
    named = f"{corpus} {hashlib.sha256(rows.tobytes()).hexdigest()}"
    folder /= fingerprint_of_vectors(model, tokenizer, named, accelerator.mixed_precision)
    with locked(folder) if accelerator.is_main_process else nullcontext():
        accelerator.wait_for_everyone()  # until the main process has the lock
        numbers = range(-(-len(rows) // DOCUMENTS_IN_A_FILE))
        missing = [number for number in numbers if not file_of(folder, number).exists()]
        accelerator.wait_for_everyone()  # until every process knows what is missing
        share = missing[accelerator.process_index :: accelerator.num_processes]
        documents = concatenate_datasets([table.select_columns(["language", "text"]) for table in articles.values()])
        model.to(accelerator.device)
        name = "sentence vectors" if accelerator.is_main_process else ""
        bar = progress_bar(name, min(len(rows), len(share) * DOCUMENTS_IN_A_FILE), unit="document")
        with bar, torch.no_grad(), accelerator.autocast():
            for number in share:
                read = documents[rows[number * DOCUMENTS_IN_A_FILE :][:DOCUMENTS_IN_A_FILE]]
                with file_written_whole(file_of(folder, number)) as partial:
                    save_file(encode_sentences(model, tokenizer, read["text"], read["language"]), partial)
                bar.update(len(read["text"]))
        accelerator.wait_for_everyone()
    return SentenceVectors(folder, articles, rows)


def encode_sentences(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, texts: list[str], languages: list[str]
) -> dict[str, Tensor]:
    """The `vectors` of the sentences of some texts (sentences, hidden), float16, those of one text after those of
    another; their `lengths` in tokens (sentences,), int32; and `bounds` (texts + 1,), int64, the first sentence of each
    text, then the count of all. On the CPU."""
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for batch, inputs in padded_batches(tokenizer, tokenizer(texts, language=languages), MAX_TOKENS_PER_BATCH):
        sentences, vectors = model.hmde.encode_sentences(**inputs.to(model.device))
        counts = sentences.document.bincount().tolist()
        parts = vectors.cpu().split(counts), sentences.length.int().cpu().split(counts)
        found |= dict(zip(batch.tolist(), zip(*parts)))
    in_order = [found[index] for index in range(len(texts))]
    of_texts, lengths = (list(parts) for parts in zip(*in_order))
    bounds = [0, *accumulate(map(len, lengths))]
    return {"vectors": torch.cat(of_texts).half(), "lengths": torch.cat(lengths), "bounds": torch.tensor(bounds)}


def fingerprint_of_vectors(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: str, precision: str
) -> str:
    """Hashes all that the sentence vectors of some documents depend on.

    Args:
        documents: a name for them.
        precision: the mixed precision in which they are computed.
    """
    return fingerprint(
        documents,
        precision,
        fingerprint_of_code(),
        model.config.sentence_pooling,
        model.config.sentence_modules,
        model.config.passage_length,
        tokenizer.backend_tokenizer.to_str(),
        [getattr(tokenizer, option) for option in tokenizer_options()],
        fingerprint_of_weights(model.hmde.sentence_encoder.state_dict().items()),
        fingerprint_of_weights(model.hmde.sentence_modules.state_dict().items()),
    )
