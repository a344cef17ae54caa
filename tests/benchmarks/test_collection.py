"""The benchmark of a collection: what is encoded, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import collection
from benchmarks.collection import CollectionBenchmark, encode, main, read_embeddings, write_collection
from tests.search.small_index import TEXTS


def write(folder: Path) -> None:
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


def as_told(way: str, benchmark: CollectionBenchmark, documents: Path, output: Path) -> None:
    """In place of the programs: Spark loses a document, and the vectors of Ray differ by .25."""
    rows = [row for file in documents.iterdir() for row in pq.read_table(file).to_pylist()]
    for row in rows:
        row["embedding"] = [len(row["text"]) + 0.25 * (way == "ray")]
    write_collection(rows[way == "spark" :], output)


def test_all_ways_read_the_same_documents_and_their_vectors_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "encode", as_told)
    write(tmp_path / "documents")
    options = ["--model=any", f"--documents={tmp_path / 'documents'}", f"--output={tmp_path / 'results'}", "--few=1"]
    main([*options, '--ways=["one process", ray]'])
    results = json.loads((tmp_path / "results" / "results.json").read_text())
    assert results["documents"] == len(TEXTS)
    assert [(row["way"], row["difference"]) for row in results["measured"]] == [("one process", 0), ("ray", 0.25)]
    with pytest.raises(ValueError, match=f"spark gave 3 of {len(TEXTS)} documents"):
        main([*options, "--ways=[spark]"])
    with pytest.raises(ValueError, match=f"has {len(TEXTS)} documents; give more than few=8"):
        main([*options, "--few=8"])


def test_one_process_encodes_a_collection_and_a_program_that_fails_is_named(model_folder: Path, tmp_path: Path) -> None:
    write_collection([{"id": name, "text": text, "language": "en"} for name, text in TEXTS.items()], tmp_path / "all")
    encode("one process", CollectionBenchmark(str(model_folder), ""), tmp_path / "all", tmp_path / "encoded")
    assert read_embeddings(tmp_path / "encoded").keys() == TEXTS.keys()
    with pytest.raises(ValueError, match=r"(?s)spark ended with exit code 1: .*Error"):
        encode("spark", CollectionBenchmark("no-model", ""), tmp_path / "none", tmp_path / "encoded")
