"""Vectors and indexes on disk: made once, in a stream, and never taken for those of something else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from evaluation import vectors as module
from evaluation.readers import DocumentFile
from evaluation.saved_models import fingerprint, fingerprint_of_folder, fingerprint_of_model
from evaluation.vectors import cached_vectors, search


def written(path: Path, count: int) -> Path:
    lines = (json.dumps({"doc_id": f"d{place}", "text": f"text {place}"}) + "\n" for place in range(count))
    path.write_text("".join(lines), encoding="utf-8")
    return path


class Encoder:
    """The number in a text as a vector, and how many texts it was given at once."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.sizes.append(len(texts))
        return np.array([[float(text.split()[1]), 1.0] for text in texts], dtype=np.float32)


def test_texts_pass_in_a_stream_and_are_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DOCUMENTS_AT_ONCE", 4)
    documents = DocumentFile(written(tmp_path / "en.jsonl", 10))
    encoder = Encoder()
    for _ in range(2):
        found = cached_vectors(encoder, documents, tmp_path / "cache", "one")
        assert found[:, 0].tolist() == list(range(10))
        assert isinstance(found, np.memmap)
    assert encoder.sizes == [4, 4, 2]
    assert cached_vectors(encoder, documents).tolist() == found.tolist()


def test_another_maker_or_another_text_is_encoded_anew(tmp_path: Path) -> None:
    encoder = Encoder()
    for maker, count in (("one", 3), ("two", 3), ("one", 4)):
        documents = DocumentFile(written(tmp_path / "en.jsonl", count))
        assert len(cached_vectors(encoder, documents, tmp_path / "cache", maker)) == count
        cached_vectors(encoder, {"a": "text 7"}, tmp_path / "cache", maker)
    assert encoder.sizes == [3, 1, 3, 1, 4]


def test_a_run_that_breaks_off_leaves_no_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DOCUMENTS_AT_ONCE", 2)

    def broken(texts: list[str]) -> np.ndarray:
        if "text 2" in texts:
            raise RuntimeError("out of memory")
        return Encoder()(texts)

    documents = DocumentFile(written(tmp_path / "en.jsonl", 4))
    with pytest.raises(RuntimeError):
        cached_vectors(broken, documents, tmp_path / "cache", "one")
    assert cached_vectors(Encoder(), documents, tmp_path / "cache", "one")[:, 0].tolist() == [0, 1, 2, 3]


def test_fingerprints_tell_contents_and_names_apart(tmp_path: Path) -> None:
    found = set()
    for name, content in (("a", "x"), ("a", "y"), ("b", "x")):
        folder = tmp_path / f"{name}{content}"
        folder.mkdir()
        (folder / name).write_text(content)
        assert fingerprint_of_model(str(folder)) == fingerprint_of_folder(folder)
        found.add(fingerprint_of_folder(folder))
    assert len(found) == 3
    assert fingerprint("ab", "c") != fingerprint("a", "bc")


def unit_vectors(count: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, 16)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@pytest.mark.parametrize("kind", ["flat", "ivf", "hnsw"])
def test_an_index_finds_what_comparing_all_finds(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DOCUMENTS_AT_ONCE", 300)
    documents, queries = unit_vectors(1000, seed=0), unit_vectors(20, seed=1)
    best = np.argsort(-(queries @ documents.T), axis=1)[:, :10]
    cosines, places = search(documents, queries, 10, kind, tmp_path / f"x.{kind}")
    overlap = np.mean([len(set(one) & set(other)) / 10 for one, other in zip(places, best)])
    assert overlap == 1.0 if kind == "flat" else overlap > 0.5
    rows = np.arange(20)[:, None]
    assert cosines == pytest.approx((queries @ documents.T)[rows, places], abs=1e-5)
    assert (tmp_path / f"x.{kind}").exists() == (kind != "flat")
    again = search(documents, queries, 10, kind, tmp_path / f"x.{kind}")
    assert np.array_equal(again[1], places)


def test_an_index_on_disk_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents, queries = unit_vectors(200, seed=0), unit_vectors(3, seed=1)
    search(documents, queries, 5, "hnsw", tmp_path / "x.hnsw")
    monkeypatch.setattr(module, "build_index", None)
    search(documents, queries, 5, "hnsw", tmp_path / "x.hnsw")
    assert search(documents[:4], queries, 10, "hnsw", tmp_path / "x.hnsw")[1].shape == (3, 4)
