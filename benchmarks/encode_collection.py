"""How much memory `python -m search.encode_collection` takes for many short documents, and for one very long document.

    python -m benchmarks.encode_collection --encoder runs/e5-small --documents '[100000, 300000, 1000000]'
    python -m benchmarks.encode_collection --encoder runs/e5-small --documents '[]' --sentences '[1000, 10000, 100000]'

Short documents have twelve words. They are encoded by an HMDE of two layers of 32 dimensions with the encoder's
tokenizer, so everything but the model is measured. A long document is encoded by an untrained HMDE on the encoder,
whose `max_sentences` is the document's number of sentences. Each number is measured in a process of its own. Linux
only.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import common.threads

from transformers import AutoTokenizer, BertConfig, BertModel

from benchmarks.index import BLOCK, WORDS, random_texts
from benchmarks.measure import peak_memory, run_apart, timed
from common.command_line import options_from, run
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from search import encode_collection


@dataclass
class CollectionBenchmark:
    """Encode numbers of short documents, and long ones."""

    encoder: str
    """Folder or Hub name of a sentence encoder."""

    documents: list[int] = field(default_factory=lambda: [100_000])
    """Numbers of short documents."""

    sentences: list[int] = field(default_factory=list)
    """Numbers of sentences of long documents."""

    output: str = "runs/encode-benchmark"
    """A folder to write, which must not exist; it is removed at the end."""


def prepare(folder: Path, encoder: str, count: int) -> str:
    """Write a model and a file of `count` short documents. In a process of its own, since it needs much memory too."""
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    config = BertConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    )
    tiny = BertModel(config)
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
    with peak_memory("cpu") as memory, timed() as taken:
        encode_collection.main([f"--{name}={value}" for name, value in (given | {"dtype": "float32"}).items()])
    return f"{count:9} documents  {taken.seconds:6.0f} s     {memory}"


def long_document(folder: Path, encoder: str, sentences: int) -> str:
    """Encode one document of so many sentences."""
    save_hmde(Path(encoder), folder / "model", max_sentences=sentences)
    model = HMDEForDocumentEmbedding.from_pretrained(folder / "model")
    tokenizer = HMDETokenizer.from_pretrained(folder / "model")
    text = " ".join(f"{text.capitalize()}." for text in random_texts(sentences, WORDS, seed=0))
    with peak_memory("cpu") as memory:
        with timed() as tokenizing:
            row = tokenizer([text], language="en")["input_ids"][0]
        assert row.count(tokenizer.start_token_id) == sentences
        with timed() as encoding:
            model.encode_documents([text], tokenizer, language="en")
    times = f"{tokenizing.seconds:4.0f} s to tokenize, {encoding.seconds:6.0f} s to tokenize and encode"
    return f"{sentences:9} sentences, {len(row)} tokens  {times}     {memory}"


def save_hmde(encoder: Path, folder: Path, max_sentences: int = 128, **options: int) -> None:
    """An untrained HMDE on an encoder."""
    model = HMDEForDocumentEmbedding.from_sentence_encoder(str(encoder), max_sentences=max_sentences, **options)
    model.save_pretrained(folder)
    HMDETokenizer.from_sentence_encoder(str(encoder), max_sentences=max_sentences).save_pretrained(folder)


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(CollectionBenchmark, argv)
    folder, encoder = Path(benchmark.output), benchmark.encoder
    if folder.exists():
        raise ValueError(f"output {folder} exists; name a folder that does not, since it is removed at the end")
    runs = [
        [partial(prepare, folder, encoder, count), partial(many_documents, folder, count)]
        for count in benchmark.documents
    ]
    runs += [[partial(long_document, folder, encoder, count)] for count in benchmark.sentences]
    for steps in runs:
        folder.mkdir(parents=True)
        run_apart(steps)
        shutil.rmtree(folder)


if __name__ == "__main__":
    run(main)
