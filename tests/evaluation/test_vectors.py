"""Vectors and indexes on disk: made once, in a stream, and never taken for those of something else."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from evaluation import vectors as module
from evaluation.datasets.retrieval_sets import DocumentFile
from evaluation.vectors import cached_vectors
from hmde.common.fingerprints import fingerprint, fingerprint_of_folder, fingerprint_of_model

CONTEXT = multiprocessing.get_context("fork")


def written(path: Path, count: int) -> Path:
    lines = (json.dumps({"doc_id": f"d{index}", "text": f"text {index}"}) + "\n" for index in range(count))
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


class LoggingEncoder(Encoder):
    """Keeps a line of what it encodes in a file. It begins when it is released, and may die before it is done."""

    def __init__(self, log: Path, dies_at: str = "") -> None:
        super().__init__()
        self.log, self.dies_at = log, dies_at
        self.called, self.released = CONTEXT.Event(), CONTEXT.Event()

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.called.set()
        self.released.wait()
        if self.dies_at in texts:
            os.kill(os.getpid(), signal.SIGKILL)
        with self.log.open("a") as log:
            log.writelines(f"{text}\n" for text in texts)
        return super().__call__(texts)


def one_encodes_and_another_waits(
    documents: DocumentFile, cache: Path, log: Path, monkeypatch: pytest.MonkeyPatch, dies_at: str = ""
) -> list[int | None]:
    """Two processes need the same vectors, and the second one comes while the first one encodes. Their exit codes."""
    waits = CONTEXT.Event()
    monkeypatch.setattr("hmde.common.files.logger.warning", lambda *_: waits.set())
    monkeypatch.setattr(module, "DOCUMENTS_AT_ONCE", 2)
    first, second = LoggingEncoder(log, dies_at), LoggingEncoder(log)
    second.released.set()
    processes = []
    for encoder, reached in ((first, first.called), (second, waits)):
        processes.append(CONTEXT.Process(target=cached_vectors, args=(encoder, documents, cache, "one")))
        processes[-1].start()
        reached.wait()
    first.released.set()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def visible(folder: Path) -> list[str]:
    """What a listing shows; locks are hidden files."""
    return [path.name for path in folder.iterdir() if not path.name.startswith(".")]


def test_of_two_processes_that_need_the_same_vectors_one_encodes_and_the_other_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, log = DocumentFile(written(tmp_path / "en.jsonl", 60)), tmp_path / "log"
    assert one_encodes_and_another_waits(documents, tmp_path / "cache", log, monkeypatch) == [0, 0]
    assert log.read_text().splitlines() == [f"text {index}" for index in range(60)]
    assert cached_vectors(Encoder(), documents, tmp_path / "cache", "one")[:, 0].tolist() == list(range(60))
    assert len(visible(tmp_path / "cache")) == 1


def test_a_process_that_is_killed_leaves_the_work_to_the_one_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, log = DocumentFile(written(tmp_path / "en.jsonl", 60)), tmp_path / "log"
    codes = one_encodes_and_another_waits(documents, tmp_path / "cache", log, monkeypatch, dies_at="text 40")
    assert codes == [-signal.SIGKILL, 0]
    assert len(log.read_text().splitlines()) == 40 + 60
    encoder = Encoder()
    assert cached_vectors(encoder, documents, tmp_path / "cache", "one")[:, 0].tolist() == list(range(60))
    assert encoder.sizes == []
    assert len(visible(tmp_path / "cache")) == 1


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    documents = DocumentFile(written(tmp_path / "en.jsonl", 3))
    with monkeypatch.context() as patch:
        patch.setattr(np.lib.format, "write_array_header_1_0", full)
        with pytest.raises(OSError, match=r"the disk of .*/cache/one-.*\.npy is full; make room and run again"):
            cached_vectors(Encoder(), documents, tmp_path / "cache", "one")
    assert visible(tmp_path / "cache") == []
    assert len(cached_vectors(Encoder(), documents, tmp_path / "cache", "one")) == 3


def test_documents_that_change_while_they_are_encoded_leave_no_vectors(tmp_path: Path) -> None:
    documents = DocumentFile(written(tmp_path / "en.jsonl", 3))

    def encode(texts: list[str]) -> np.ndarray:
        written(tmp_path / "en.jsonl", 4)
        return Encoder()(texts)

    with pytest.raises(ValueError, match="changed while they were encoded"):
        cached_vectors(encode, documents, tmp_path / "cache", "one")
    assert visible(tmp_path / "cache") == []


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


def test_fingerprints_follow_links_to_folders_and_not_round_in_a_circle(tmp_path: Path) -> None:
    copied, linked = tmp_path / "copied", tmp_path / "linked"
    for folder in (copied / "docs", tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
        (folder / "en.tsv").write_text("x")
    linked.mkdir()
    (linked / "docs").symlink_to(tmp_path / "elsewhere")
    assert fingerprint_of_folder(linked) == fingerprint_of_folder(copied)
    (linked / "docs" / "round").symlink_to(linked)
    assert fingerprint_of_folder(linked) == fingerprint_of_folder(copied)
    (tmp_path / "elsewhere" / "en.tsv").write_text("y")
    assert fingerprint_of_folder(linked) != fingerprint_of_folder(copied)
