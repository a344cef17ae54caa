"""Sentence vectors kept on disk train the same document encoder as those computed anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from tests.pretraining import in_processes, options, write_corpus
from training import pretrain
from training.checkpoints import corpus_fingerprint
from training.data import Triples, collate
from training.sentence_vectors import SentenceVectors, fingerprint, sentence_vectors


@pytest.fixture(autouse=True)
def fresh_accelerator():
    """Accelerate keeps its settings in the process; each run of ours is a process of its own."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("pretrain"))


@pytest.fixture
def triples(corpus_folder) -> Triples:
    return Triples(corpus_folder, "train", both_sides=True)


def test_document_embeddings_are_the_same_from_kept_vectors(corpus_folder, triples, model, tokenizer, tmp_path):
    corpus = corpus_fingerprint(corpus_folder)
    kept = sentence_vectors(tmp_path, Accelerator(cpu=True), model, tokenizer, triples.articles, corpus)
    chosen = [triples[place] for place in range(4)]
    encoder = pretrain.TripleEncoder(model)
    with torch.no_grad():
        anew = encoder(collate(chosen, tokenizer, both_sides=True).documents, None).documents
        found = encoder(collate(chosen, tokenizer, True, sentence_vectors=kept).documents, None).documents
    torch.testing.assert_close(found, anew, rtol=1e-5, atol=1e-5)


def test_they_are_computed_once_and_again_for_another_encoder_tokenizer_corpus_or_code(
    corpus_folder, triples, model, tokenizer, make_model, xlmr, tmp_path, monkeypatch
):
    first = sentence_vectors(tmp_path, Accelerator(cpu=True), model, tokenizer, triples.articles, "corpus")
    monkeypatch.setattr("training.sentence_vectors.encode", None)  # would fail if called
    again = sentence_vectors(tmp_path, Accelerator(cpu=True), model, tokenizer, triples.articles, "corpus")
    assert isinstance(again, SentenceVectors)
    assert (again.vectors == first.vectors).all()
    names = {fingerprint(model, tokenizer, "corpus"), fingerprint(model, tokenizer, "another")}
    names.add(fingerprint(make_model(xlmr), tokenizer, "corpus"))
    monkeypatch.setattr(tokenizer, "max_sentences", 5)
    names.add(fingerprint(model, tokenizer, "corpus"))
    monkeypatch.setattr("training.sentence_vectors.fingerprint_of_code", lambda: "another version")
    names.add(fingerprint(model, tokenizer, "corpus"))
    assert len(names) == 5


def test_two_processes_share_the_work(corpus_folder, labse, tmp_path):
    """The vectors that two processes write are those that one writes."""
    files = []
    for number in (1, 2):
        arguments = options(
            corpus_folder, labse, tmp_path / str(number), freeze="sentence_encoder", max_steps=1, batch_size=4 // number
        )
        assert in_processes(number, lambda _, arguments=arguments: pretrain.main(arguments)) == [0] * number
        (file,) = corpus_folder.parent.glob("corpus-sentence-vectors/*/vectors.npy")
        files.append(file.rename(tmp_path / f"vectors-of-{number}.npy"))
        shutil.rmtree(file.parent)
    assert files[0].read_bytes() == files[1].read_bytes()
