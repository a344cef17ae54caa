"""Embeddings of collections of any size: reads documents as a stream, writes shards.

    hmde encode DOCUMENTS OUTPUT
    accelerate launch --num_processes 8 -m hmde encode DOCUMENTS OUTPUT

The documents, in their order, are divided into shards of `documents_per_shard`, and the shards among the processes. A
shard is a Parquet file, written as a whole or not at all, with the columns `id`, `content_hash` (of language and text)
and `embedding` (float32, L2-normalised). Its metadata are fingerprints of the model and of what the shard was made of.

Run again, with any number of processes, the command writes the shards that are missing, damaged or out of date, and
removes those that are no longer needed. Memory holds two shards, and the ids of all documents. If the documents change
while they are encoded, the run ends with an error, because one process may have read them before and another after.

`hmde index DOCUMENTS INDEX --embeddings OUTPUT` makes an index without sentences of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from json import loads
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from accelerate import Accelerator
from accelerate.utils import gather_object

from hmde.commands.options import EncodeOptions
from hmde.common.device import dtype_of, use_all_cores
from hmde.common.files import file_written_whole, write_json
from hmde.common.fingerprints import fingerprint, fingerprint_of_model
from hmde.common.saved_models import check_is_hmde
from hmde.documents.documents import Document, Documents, check_apart, distinct
from hmde.index.encoder import Encoder
from hmde.release.released import opened_as
from modeling_hmde.inference_hmde import read_ahead


def main(options: EncodeOptions) -> None:
    state = Accelerator()
    if state.device.type == "cpu":
        use_all_cores(int(os.environ.get("LOCAL_WORLD_SIZE", state.num_processes)))
    readings: list[str] = []  # a fingerprint of the documents for each time they were read
    with state.main_process_first():
        if state.is_main_process:
            check_options(options)
            readings.append(fingerprint(*map(shard_fingerprint, read_shards(options))))
            write_json(Path(options.output) / "recipe.json", asdict(options))
    dtype = dtype_of(options.dtype)
    name = opened_as(options.model)
    model_fingerprint = fingerprint_of_model(name)  # before a file of it can be removed that was read
    encoder = Encoder.load(name, options.dtype, truncation="error" if options.strict else True)
    encoder.model.to(state.device)
    shards: dict[Path, str] = {}
    truncated = 0
    for number, documents in enumerate(read_shards(options)):
        path = Path(options.output) / f"shard-{number:06d}.parquet"
        shards[path] = shard_fingerprint(documents)
        if number % state.num_processes != state.process_index:
            continue
        metadata = {"model": model_fingerprint, "made_of": fingerprint(model_fingerprint, dtype, shards[path])}
        ids, hashes = zip(*((document.id, document.content_hash) for document in documents))
        shard = pa.table({"id": pa.array(ids), "content_hash": pa.array(hashes)}, metadata=metadata)
        if is_written(path, shard):
            continue
        began = time.perf_counter()
        embeddings = encoder.encode(documents)
        truncated += encoder.name_truncated(documents)
        column = pa.FixedSizeListArray.from_arrays(pa.array(embeddings.ravel()), embeddings.shape[1])
        with file_written_whole(path) as partial:
            pq.write_table(shard.append_column("embedding", column), partial, write_page_checksum=True)
        print(f"{path.name}: {len(documents) / (time.perf_counter() - began):.1f} documents a second", flush=True)
    if len(set(gather_object([*readings, fingerprint(*shards.values())]))) > 1:
        raise ValueError(
            f"documents {options.documents} changed while they were encoded; run again when they are final"
        )
    if truncated_by_all := sum(gather_object([truncated])):
        state.print(f"documents truncated: {truncated_by_all}")
    if state.is_main_process:
        for path in {*Path(options.output).glob("shard-*.parquet")} - shards.keys():
            path.unlink()


def check_options(options: EncodeOptions) -> None:
    """
    Raises:
        ValueError: the model is no HMDE, the output lies among the documents, or it holds shards of other options.
    """
    check_is_hmde("model", opened_as(options.model))
    check_apart(Path(options.output), Path(options.documents))
    written = Path(options.output) / "recipe.json"
    before = loads(written.read_text(encoding="utf-8")) if written.exists() else asdict(options)
    if any(before.get(name) != value for name, value in asdict(options).items()):
        raise ValueError(
            f"{written} differs from these options, so its shards do too; choose another output, or those options"
        )


def read_shards(options: EncodeOptions) -> Iterator[list[Document]]:
    """The documents in their order, `documents_per_shard` at a time."""
    source = Documents(options.documents, options.language, options.columns, strict=True)
    documents = distinct(read_ahead(source, options.documents_per_shard))
    while shard := list(islice(documents, options.documents_per_shard)):
        yield shard


def shard_fingerprint(documents: list[Document]) -> str:
    return fingerprint([document.id for document in documents], [document.content_hash for document in documents])


def is_written(path: Path, shard: pa.Table) -> bool:
    """Whether an undamaged file holds embeddings of a shard.

    Args:
        shard: its columns and metadata without the embeddings.
    """
    try:
        table = pq.read_table(path, page_checksum_verification=True)
    except (OSError, ValueError, pa.ArrowException):
        return False
    return table.column_names[2:] == ["embedding"] and table.remove_column(2).equals(shard, check_metadata=True)
