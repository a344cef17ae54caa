"""Embeddings of collections of any size: documents streamed in, shards written out.

    python -m evaluation.encode --model MODEL --documents FOLDER --output FOLDER
    accelerate launch --num_processes 8 -m evaluation.encode --model MODEL --documents FOLDER --output FOLDER

The documents are cut, in their order, into shards of `documents_per_shard`; each process encodes those of its turn.
A shard is a Parquet file of the columns `id` and `embedding` (float32, unit length) that is there whole or not at all.
Run again, with any number of processes, it goes on with the shards that are missing. Memory holds one shard.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from accelerate import PartialState
from datasets import load_dataset
from jsonargparse import auto_cli

from evaluation.report import write_whole
from evaluation.saved_models import model_type_of
from evaluation.systems import Dtype
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

BUILDERS = {".parquet": "parquet", ".jsonl": "json", ".json": "json"}


@dataclass
class EncodeRecipe:
    """What is encoded, and where its embeddings go.

    Args:
        model: folder or Hub name of an HMDE.
        documents: a file or a folder of files, .parquet or .jsonl, or the Hub name of a data set.
        output: folder to write.
        text_column: of the documents' texts.
        id_column: of what names a document; strings or integers.
        language_column: of ISO 639-1 codes, for the sentence splitter's rules; none if not given.
        subset: of a data set on the Hub that has several.
        split: of a data set on the Hub.
        documents_per_shard: more are encoded a little faster; what a stopped run loses is at most a shard a process.
        dtype: of weights and activations: float32, or bfloat16, which is faster where the processor multiplies it.
    """

    model: str
    documents: str
    output: str
    text_column: str = "text"
    id_column: str = "id"
    language_column: str | None = None
    subset: str | None = None
    split: str = "train"
    documents_per_shard: int = 8192
    dtype: Dtype = "float32"

    def __post_init__(self) -> None:
        if self.documents_per_shard < 1:
            raise ValueError(f"documents_per_shard is {self.documents_per_shard}; it must be at least 1")


def main(argv: list[str] | None = None) -> None:
    recipe = auto_cli(EncodeRecipe, args=argv, as_positional=False)
    state = PartialState()
    with state.main_process_first():
        check_recipe(recipe)
    tokenizer = HMDETokenizer.from_pretrained(recipe.model)
    model = HMDEForDocumentEmbedding.from_pretrained(recipe.model, dtype=recipe.dtype)
    model.to(state.device)
    for number, shard in enumerate(read_shards(recipe)):
        path = shard_path(recipe, number)
        if number % state.num_processes != state.process_index or path.exists():
            continue
        began = time.perf_counter()
        write_shard(path, shard[recipe.id_column], encode_shard(recipe, model, tokenizer, shard))
        print(f"{path.name}: {len(shard) / (time.perf_counter() - began):.1f} documents a second", flush=True)
    state.wait_for_everyone()


def check_recipe(recipe: EncodeRecipe) -> None:
    """Finds what is wrong before anything is computed, and leaves the recipe in the output folder.

    Raises:
        ValueError: the model is no HMDE, a column is missing, or the folder holds shards of another recipe.
    """
    if (model_type := model_type_of("model", recipe.model)) != "hmde":
        raise ValueError(f"model {recipe.model} is of type {model_type}; give an HMDE")
    first = next(read_shards(recipe), None)
    if first is None:
        raise ValueError(f"documents {recipe.documents} holds no document")
    for column in (recipe.id_column, recipe.text_column, recipe.language_column):
        if column is not None and column not in first.column_names:
            raise ValueError(
                f"documents {recipe.documents} have no column {column!r}, only {', '.join(first.column_names)}; name "
                "the one that is meant by id_column, text_column or language_column"
            )
    written = Path(recipe.output) / "recipe.json"
    if written.exists() and json.loads(written.read_text(encoding="utf-8")) != asdict(recipe):
        raise ValueError(
            f"{written} differs from this recipe, so its shards do too; choose another output, or that one"
        )
    write_whole(written, json.dumps(asdict(recipe), indent=2) + "\n")


def read_shards(recipe: EncodeRecipe) -> Iterator[pa.Table]:
    """The documents in their order, `documents_per_shard` at a time. Texts that are skipped are never made strings.

    Raises:
        ValueError: a path has neither .parquet nor .jsonl files, or both.
    """
    path = Path(recipe.documents)
    if path.exists():
        files = sorted(file for file in path.iterdir() if file.suffix in BUILDERS) if path.is_dir() else [path]
        builders = {BUILDERS.get(file.suffix) for file in files}
        builder = builders.pop() if len(builders) == 1 else None
        if builder is None:
            raise ValueError(f"documents {path} must be .parquet files or .jsonl files, and not both")
        data = load_dataset(builder, data_files=[str(file) for file in files], split="train", streaming=True)
    else:
        data = load_dataset(recipe.documents, recipe.subset, split=recipe.split, streaming=True)
    yield from data.with_format("arrow").iter(batch_size=recipe.documents_per_shard)


def shard_path(recipe: EncodeRecipe, number: int) -> Path:
    return Path(recipe.output) / f"shard-{number:06d}.parquet"


def encode_shard(
    recipe: EncodeRecipe, model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, shard: pa.Table
) -> np.ndarray:
    """(documents, hidden), float32.

    Raises:
        ValueError: a document has no text.
    """
    texts = shard[recipe.text_column].to_pylist()
    if None in texts:
        name = shard[recipe.id_column][texts.index(None)].as_py()
        raise ValueError(
            f"document {name} of {recipe.documents} has no text (null); write an empty one, or leave it out"
        )
    languages = shard[recipe.language_column].to_pylist() if recipe.language_column else None
    return model.encode_documents(texts, tokenizer, language=languages)


def write_shard(path: Path, ids: pa.ChunkedArray, embeddings: np.ndarray) -> None:
    """Embeddings: (documents, hidden), float32."""
    values = pa.array(embeddings.ravel(), type=pa.float32())
    column = pa.FixedSizeListArray.from_arrays(values, embeddings.shape[1])
    partial = path.with_name(path.name + ".partial")
    pq.write_table(pa.table({"id": ids, "embedding": column}), partial)
    os.replace(partial, path)


if __name__ == "__main__":
    main()
