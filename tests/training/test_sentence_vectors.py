"""Sentence vectors kept on disk train the same document encoder as those computed anew."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors import SafetensorError

from tests.pretraining import in_processes, options
from training import pretrain
from training.data import sentence_vectors as module
from training.data.articles import row_of
from training.data.batches import collate
from training.data.sentence_vectors import SentenceVectors, fingerprint_of_vectors, sentence_vectors
from training.data.triples import CONCEPT_OF, LANGUAGE_OF, Triples
from training.encoder import TwoPathEncoder


@pytest.fixture
def triples(corpus_folder) -> Triples:
    return Triples(corpus_folder, "train", symmetric=True)


def vectors_of(triples: Triples, model, tokenizer, folder: Path, precision: str = "no") -> SentenceVectors:
    accelerator = Accelerator(cpu=True, mixed_precision=precision)
    return sentence_vectors(
        folder, accelerator, model, tokenizer, triples.articles, triples.rows_of_articles(), "corpus"
    )


def test_document_embeddings_are_the_same_from_kept_vectors(triples, model, tokenizer, tmp_path):
    kept = vectors_of(triples, model, tokenizer, tmp_path)
    chosen = [triples[index] for index in range(4)]
    encoder = TwoPathEncoder(model)
    with torch.no_grad():
        anew = encoder(collate(chosen, triples.roles, tokenizer).rows)
        from_kept = encoder(collate(chosen, triples.roles, tokenizer, sentence_vectors=kept).rows)
    torch.testing.assert_close(from_kept, anew, rtol=2e-3, atol=2e-3)  # they are kept in float16


def test_the_documents_that_triples_name_are_encoded_and_no_others(triples):
    names = {(triple[LANGUAGE_OF[role]], triple[CONCEPT_OF[role]]) for triple in triples for role in triples.roles}
    first_row, expected = 0, []
    for language, table in triples.articles.items():
        expected += [first_row + row_of(triples.articles, language, name) for code, name in names if code == language]
        first_row += len(table)
    assert triples.rows_of_articles().tolist() == sorted(expected)
    assert len(expected) < first_row


def test_they_are_computed_once_and_again_for_another_encoder_tokenizer_corpus_or_code(
    triples, model, tokenizer, make_model, xlmr, tmp_path, monkeypatch
):
    first = vectors_of(triples, model, tokenizer, tmp_path)
    monkeypatch.setattr("training.data.sentence_vectors.encode_sentences", None)  # would fail if called
    again = vectors_of(triples, model, tokenizer, tmp_path)
    assert isinstance(again, SentenceVectors)
    keys = [(triple["anchor_language"], triple["concept_id"]) for triple in (triples[0], triples[1])]
    for name, kept in again.batch(keys).items():
        assert torch.equal(kept, first.batch(keys)[name])
    names = {fingerprint_of_vectors(model, tokenizer, corpus, "no") for corpus in ("corpus", "another")}
    names.add(fingerprint_of_vectors(make_model(xlmr), tokenizer, "corpus", "no"))
    for option in ("max_sentences", "min_sentence_bytes"):
        monkeypatch.setattr(tokenizer, option, 5)
        names.add(fingerprint_of_vectors(model, tokenizer, "corpus", "no"))
    monkeypatch.setattr("training.data.sentence_vectors.fingerprint_of_code", lambda: "another version")
    names.add(fingerprint_of_vectors(model, tokenizer, "corpus", "no"))
    assert len(names) == 6


@pytest.mark.parametrize(("precision", "computed"), [("no", False), ("bf16", True)])
def test_they_are_computed_again_in_another_precision(
    triples, model, tokenizer, tmp_path, monkeypatch, precision, computed
):
    vectors_of(triples, model, tokenizer, tmp_path)
    calls, encode_sentences = [], module.encode_sentences
    monkeypatch.setattr(module, "encode_sentences", lambda *given: calls.append(1) or encode_sentences(*given))
    AcceleratorState._reset_state(reset_partial_state=True)
    vectors_of(triples, model, tokenizer, tmp_path, precision)
    assert bool(calls) == computed


@pytest.mark.slow
def test_two_processes_share_the_work(corpus_folder, labse, tmp_path, monkeypatch):
    """The vectors that two processes write are those that one writes, bit for bit with as many threads in each."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(module, "DOCUMENTS_IN_A_FILE", 2)
    kept_by = []
    for number in (1, 2):
        arguments = options(
            corpus_folder, labse, tmp_path / str(number), freeze="sentence_encoder", max_steps=1, batch_size=4 // number
        )
        assert in_processes(number, lambda _, arguments=arguments: pretrain.main(arguments)) == [0] * number
        folder = corpus_folder.parent / "corpus-sentence-vectors"
        kept_by.append(kept(folder))
        shutil.rmtree(folder)
    assert kept_by[0] == kept_by[1]
    assert len(kept_by[0]) > 8


def keep(corpus_folder: Path, folder: Path, model, tokenizer, die_after: int = -1) -> None:
    """A run of its own that keeps the sentence vectors, two documents at a time, and may be killed on the way."""
    encoded = []
    encode_sentences = module.encode_sentences

    def counted(*arguments):
        if len(encoded) == die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        encoded.append(1)
        return encode_sentences(*arguments)

    module.DOCUMENTS_IN_A_FILE, module.encode_sentences = 2, counted
    AcceleratorState._reset_state(reset_partial_state=True)
    vectors_of(Triples(corpus_folder, "train", symmetric=True), model, tokenizer, folder)
    (folder / f"encoded-by-{os.getpid()}").write_text(str(len(encoded)))


def start(*arguments) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=keep, args=arguments)
    process.start()
    return process


def kept(folder: Path) -> dict[str, bytes]:
    (whole,) = (path for path in folder.iterdir() if path.is_dir())
    return {path.name: path.read_bytes() for path in whole.iterdir()}


def batches_encoded(folder: Path) -> int:
    return sum(int(path.read_text()) for path in folder.glob("encoded-by-*"))


@pytest.mark.slow
def test_of_two_runs_that_need_the_same_vectors_one_computes_them(corpus_folder, model, tokenizer, tmp_path):
    keep(corpus_folder, tmp_path / "alone", model, tokenizer)
    runs = [start(corpus_folder, tmp_path / "shared", model, tokenizer) for _ in range(2)]
    for run in runs:
        run.join()
    assert [run.exitcode for run in runs] == [0, 0]
    assert kept(tmp_path / "shared") == kept(tmp_path / "alone")
    assert batches_encoded(tmp_path / "shared") == batches_encoded(tmp_path / "alone") > 8


def test_a_killed_run_loses_no_more_than_the_documents_it_was_at(corpus_folder, model, tokenizer, tmp_path):
    keep(corpus_folder, tmp_path / "alone", model, tokenizer)
    killed = start(corpus_folder, tmp_path / "killed", model, tokenizer, 5)
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    again = start(corpus_folder, tmp_path / "killed", model, tokenizer)
    again.join()
    assert again.exitcode == 0
    assert kept(tmp_path / "killed") == kept(tmp_path / "alone")
    assert batches_encoded(tmp_path / "killed") == batches_encoded(tmp_path / "alone") - 5


def test_a_disk_without_room_for_the_vectors_is_named(triples, model, tokenizer, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(module, "save_file", full)
    with pytest.raises(OSError, match=r"the disk of .*000000\.safetensors is full; make room and run again"):
        vectors_of(triples, model, tokenizer, tmp_path)
