"""Embeddings of collections of any size: documents streamed in, shards written out.

    python -m search.encode --model MODEL --documents FOLDER --output FOLDER
    accelerate launch --num_processes 8 -m search.encode --model MODEL --documents FOLDER --output FOLDER

The documents are cut, in their order, into shards of `documents_per_shard`; each process encodes those of its turn.
A shard is a Parquet file that is there whole or not at all, of the columns `id`, `content_hash` (of language and text)
and `embedding` (float32, unit length). Its metadata name what it was made of: the model and the documents, by content.
Run again, with any number of processes, it writes the shards that are missing or damaged and those of which something
has changed, and removes those for which there are no documents any more. Memory holds one shard, and the ids of all
documents. Documents that change while they are encoded are an error at the end, since one process may have read them
before and another after.

`python -m search index DOCUMENTS INDEX --embeddings FOLDER` makes an index of them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from json import loads
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from accelerate import Accelerator
from accelerate.utils import gather_object
from datasets import load_dataset

from common.command_line import options_from
from common.device import Dtype, dtype_of, use_all_cores
from common.files import file_written_whole, write_json
from common.fingerprints import fingerprint, fingerprint_of_model
from common.saved_models import model_type_of
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from search.documents import TABLES, Document, files_of, read_rows

Id = str | int


@dataclass
class EncodeRecipe:
    """What is encoded, and where its embeddings go.

    Args:
        model: folder or Hub name of an HMDE.
        documents: a file or a folder of files, .parquet or .jsonl, or the Hub name of a data set. Rows that are wrong
            are found before anything is encoded, on the Hub as they come.
        output: folder to write.
        text_column: of the documents' texts.
        id_column: of what names a document; strings or integers.
        language_column: of ISO 639-1 codes, for the sentence splitter's rules; none if not given.
        subset: of a data set on the Hub that has several.
        split: of a data set on the Hub.
        documents_per_shard: more are encoded a little faster; what a stopped run loses is at most a shard a process.
        dtype: of weights and activations: float32, bfloat16, or auto: bfloat16 where the hardware multiplies it.
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
    dtype: Dtype = "auto"

    def __post_init__(self) -> None:
        if self.documents_per_shard < 1:
            raise ValueError(f"documents_per_shard is {self.documents_per_shard}; it must be at least 1")


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(EncodeRecipe, argv)
    state = Accelerator()
    if state.device.type == "cpu":
        use_all_cores(int(os.environ.get("LOCAL_WORLD_SIZE", state.num_processes)))
    readings: list[str] = []  # what the documents were, each time that they were read
    with state.main_process_first():
        if state.is_main_process:
            check_recipe(recipe)
            if Path(recipe.documents).exists():
                readings.append(fingerprint(*(fingerprint_of(*shard) for shard in read_shards(recipe))))
            write_json(Path(recipe.output) / "recipe.json", asdict(recipe))
    dtype = dtype_of(recipe.dtype)
    tokenizer = HMDETokenizer.from_pretrained(recipe.model)
    model = HMDEForDocumentEmbedding.from_pretrained(recipe.model, dtype=dtype)
    model.to(state.device)
    model_name = fingerprint_of_model(recipe.model)
    shards: dict[Path, str] = {}
    for number, (ids, documents) in enumerate(read_shards(recipe)):
        path = Path(recipe.output) / f"shard-{number:06d}.parquet"
        shards[path] = fingerprint_of(ids, documents)
        if number % state.num_processes != state.process_index:
            continue
        made_of = {"model": model_name, "made_of": fingerprint(model_name, dtype, shards[path])}
        hashes = [document.content_hash for document in documents]
        shard = pa.table({"id": pa.array(ids), "content_hash": hashes}, metadata=made_of)
        if is_written(path, shard):
            continue
        began = time.perf_counter()
        texts, languages = zip(*((document.text, document.language) for document in documents))
        embeddings = model.encode_documents(texts, tokenizer, language=languages)
        with file_written_whole(path) as partial:
            pq.write_table(shard.append_column("embedding", column_of(embeddings)), partial, write_page_checksum=True)
        print(f"{path.name}: {len(ids) / (time.perf_counter() - began):.1f} documents a second", flush=True)
    if len(set(gather_object([*readings, fingerprint(*shards.values())]))) > 1:
        raise ValueError(f"documents {recipe.documents} changed while they were encoded; run again when they are final")
    if state.is_main_process:
        for path in {*Path(recipe.output).glob("shard-*.parquet")} - shards.keys():
            path.unlink()


def check_recipe(recipe: EncodeRecipe) -> None:
    """
    Raises:
        ValueError: the model is no HMDE, there are no documents or other columns than named, the output lies among the
            documents, or it holds shards of another recipe.
    """
    if (model_type := model_type_of("model", recipe.model)) != "hmde":
        raise ValueError(f"model {recipe.model} is of type {model_type}; give an HMDE")
    output, source = Path(recipe.output), Path(recipe.documents)
    if output.resolve().is_relative_to(source.resolve()):
        raise ValueError(f"output {output} lies in {source}, so shards would be read as documents; put it elsewhere")
    _, first = next(read_rows_of(recipe, None), (None, None))
    if first is None:
        raise ValueError(f"documents {recipe.documents} holds no document; give rows in files of {' or '.join(TABLES)}")
    for column in (recipe.id_column, recipe.text_column, recipe.language_column):
        if column is not None and column not in first:
            raise ValueError(
                f"documents {recipe.documents} have no column {column!r}, only {', '.join(first)}; name the one that "
                "is meant by id_column, text_column or language_column"
            )
    written = output / "recipe.json"
    if written.exists() and loads(written.read_text(encoding="utf-8")) != asdict(recipe):
        raise ValueError(
            f"{written} differs from this recipe, so its shards do too; choose another output, or that one"
        )


def read_shards(recipe: EncodeRecipe) -> Iterator[tuple[list[Id], list[Document]]]:
    """The documents in their order, with their ids, `documents_per_shard` at a time."""
    documents = read_documents(recipe)
    while shard := list(islice(documents, recipe.documents_per_shard)):
        yield [id for id, _ in shard], [document for _, document in shard]


def fingerprint_of(ids: list[Id], documents: list[Document]) -> str:
    """Of a shard's documents."""
    return fingerprint(ids, [document.content_hash for document in documents])


def read_documents(recipe: EncodeRecipe) -> Iterator[tuple[Id, Document]]:
    """The documents in their order, with their ids.

    Raises:
        ValueError: a row is malformed, has no id, text or language of the right type, or an id that was there before.
            Names the file and the row.
    """
    names = (recipe.id_column, recipe.text_column, recipe.language_column)
    ids: set[Id] = set()
    id_type: type = object
    for where, row in read_rows_of(recipe, [name for name in names if name is not None]):
        id, text, language = (row.get(name) if name is not None else None for name in names)
        if isinstance(id, bool) or not isinstance(id, (str, int)):
            raise ValueError(f"{where}: {recipe.id_column} is {id!r}; it must be a string or an integer")
        if not isinstance(id, id_type):
            raise ValueError(f"{where}: {recipe.id_column} is {id!r}; write all as strings, or all as integers")
        if id in ids:
            raise ValueError(f"{where}: {recipe.id_column} {id!r} is used twice; ids must differ")
        if not isinstance(text, str):
            raise ValueError(
                f"{where}: document {id} has no text ({text!r}); write an empty string, or leave the row out"
            )
        if not isinstance(language, (str, type(None))):
            raise ValueError(f"{where}: {recipe.language_column} is {language!r}; it must be a string")
        id_type = type(id)
        ids.add(id)
        document = Document(str(id), "", language, text)
        yield document.id if isinstance(id, str) else id, document


def read_rows_of(recipe: EncodeRecipe, columns: list[str] | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row, and where it is, for errors."""
    source = Path(recipe.documents)
    if source.exists():
        for file, _ in files_of(source, TABLES):
            for number, row in read_rows(file, columns):
                yield f"{file}, row {number}", row
    else:
        data = load_dataset(recipe.documents, recipe.subset, split=recipe.split, streaming=True)
        for number, row in enumerate(data, start=1):
            yield f"{recipe.documents}, row {number}", row


def is_written(path: Path, shard: pa.Table) -> bool:
    """Whether a file is there, undamaged, that holds embeddings of a shard.

    Args:
        shard: with all columns and metadata but the embeddings.
    """
    try:
        table = pq.read_table(path, page_checksum_verification=True)
    except (OSError, ValueError, pa.ArrowException):
        return False
    return table.column_names[2:] == ["embedding"] and table.remove_column(2).equals(shard, check_metadata=True)


def column_of(embeddings: np.ndarray) -> pa.Array:
    """Embeddings: (documents, hidden), float32."""
    return pa.FixedSizeListArray.from_arrays(pa.array(embeddings.ravel(), pa.float32()), embeddings.shape[1])


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
