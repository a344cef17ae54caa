"""What memory `python -m search.encode` takes for many short documents, and what one very long document takes.

    python -m benchmarks.encode_collection --encoder runs/e5-small --documents '[100000, 300000, 1000000]'
    python -m benchmarks.encode_collection --encoder runs/e5-small --documents '[]' --sentences '[1000, 10000, 100000]'

Short documents have twelve words. They are encoded by an HMDE of two layers of 32 dimensions with the encoder's
tokenizer, so what is measured is all but the model; a long document by an untrained HMDE on the encoder, with
`max_sentences` as many as it has. Each number is measured in a process of its own. Linux only.
"""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from jsonargparse import auto_cli
from transformers import AutoTokenizer, BertConfig, BertModel

from benchmarks.index import BLOCK, WORDS, peak_memory, random_texts
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from search import encode


def prepare(folder: Path, encoder: str, count: int) -> str:
    """Write a model and a file of `count` short documents. In a process of its own, since it needs much memory too."""
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    tiny = BertModel(BertConfig(**sizes, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id))
    for part in (tiny, tokenizer):
        part.save_pretrained(folder / "encoder")
    save_hmde(folder / "encoder", folder / "model", num_document_attention_heads=4)
    with (folder / "documents.jsonl").open("w", encoding="utf-8") as file:
        for first in range(0, count, BLOCK):
            for number, text in enumerate(random_texts(min(BLOCK, count - first), WORDS, seed=first), first):
                file.write(json.dumps({"id": f"document-{number:08d}", "text": f"{text}."}) + "\n")
    return f"{count:9} documents written"


def many_documents(folder: Path, count: int) -> str:
    """Encode the documents of `prepare`."""
    given = {"model": folder / "model", "documents": folder / "documents.jsonl", "output": folder / "embeddings"}
    before, began = peak_memory(), time.perf_counter()
    encode.main([f"--{name}={value}" for name, value in (given | {"dtype": "float32"}).items()])
    seconds = time.perf_counter() - began
    return f"{count:9} documents  {seconds:6.0f} s     peak {peak_memory():6.0f} MiB ({before:.0f} before)"


def long_document(folder: Path, encoder: str, sentences: int) -> str:
    """Encode one document of so many sentences."""
    save_hmde(Path(encoder), folder / "model", max_sentences=sentences)
    model = HMDEForDocumentEmbedding.from_pretrained(folder / "model")
    tokenizer = HMDETokenizer.from_pretrained(folder / "model")
    text = " ".join(f"{text.capitalize()}." for text in random_texts(sentences, WORDS, seed=0))
    before, began = peak_memory(), time.perf_counter()
    row = tokenizer([text], language="en")["input_ids"][0]
    tokenized = time.perf_counter() - began
    assert row.count(tokenizer.start_token_id) == sentences
    model.encode_documents([text], tokenizer, language="en")
    seconds = time.perf_counter() - began - tokenized
    times = f"{tokenized:4.0f} s to tokenize, {seconds:6.0f} s to encode"
    return f"{sentences:9} sentences, {len(row)} tokens  {times}     peak {peak_memory():.0f} MiB ({before:.0f} before)"


def save_hmde(encoder: Path, folder: Path, max_sentences: int = 128, **options: int) -> None:
    """An untrained HMDE on an encoder."""
    model = HMDEForDocumentEmbedding.from_sentence_encoder(str(encoder), max_sentences=max_sentences, **options)
    model.save_pretrained(folder)
    HMDETokenizer.from_sentence_encoder(str(encoder), max_sentences=max_sentences).save_pretrained(folder)


def main(
    encoder: str,
    documents: list[int],
    sentences: list[int] | None = None,
    output: str = "runs/encode-benchmark",
) -> None:
    """Encode numbers of short documents, and long ones.

    Args:
        encoder: folder or Hub name of a sentence encoder.
        documents: how many.
        sentences: of a long one.
        output: a folder to write, which must not exist; it is removed at the end.
    """
    folder = Path(output)
    if folder.exists():
        raise ValueError(f"output {folder} exists; name a folder that does not, since it is removed at the end")
    runs = [[partial(prepare, folder, encoder, count), partial(many_documents, folder, count)] for count in documents]
    runs += [[partial(long_document, folder, encoder, count)] for count in sentences or []]
    for steps in runs:
        folder.mkdir(parents=True)
        for step in steps:
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                print(process.submit(step).result(), flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
