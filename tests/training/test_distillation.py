"""An HMDE learns the vectors of a teacher."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModel, AutoTokenizer

from hmde.common.files import locked
from hmde.common.fingerprints import fingerprint_of_folder
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.paths import REPOSITORY
from tests.pretraining import options, two_have_the_gradients_of_one
from training import pretrain
from training.data.batches import collate
from training.data.kinds import DOCUMENTS, QUERIES
from training.data.triples import Triples
from training.encoder import TwoPathEncoder
from training.losses import Distillation, Start, weighted_losses
from training.losses import teacher as teachers
from training.losses.batch import BatchVectors
from training.losses.distillation import distillation
from training.losses.teacher import load_teacher
from training.models import build
from training.pretrain_recipe import PretrainRecipe

ARCHITECTURE = {
    "num_document_attention_heads": 4,
    "sentence_pooling": "mean",
    "document_norm": "pre",
    "document_dropout": 0.0,
    "max_sentences": 4,
    "query_path": "document_encoder",
}


@pytest.fixture
def teacher(xlmr, tmp_path) -> str:
    """Its vectors differ from document to document, which those of an untrained document encoder hardly do."""
    torch.manual_seed(0)
    model = HMDEForDocumentEmbedding.from_sentence_encoder(xlmr, **ARCHITECTURE)
    for weight in model.hmde.document_encoder.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    model.save_pretrained(tmp_path / "teacher")
    HMDETokenizer.from_sentence_encoder(xlmr, max_sentences=4).save_pretrained(tmp_path / "teacher")
    return str(tmp_path / "teacher")


@pytest.fixture
def in_float32(monkeypatch):
    """A teacher in bfloat16 gives other last digits in other packs of sentences."""
    monkeypatch.setattr(teachers, "dtype_of", lambda _: torch.float32)


def student(teacher: str, **changes: object) -> dict[str, object]:
    losses = {"losses.info_nce": "null", "losses.distillation.teacher": teacher}
    return {"sentence_dropout": 0.0, "architecture": json.dumps(ARCHITECTURE)} | losses | changes


def test_the_loss_is_the_share_of_the_teachers_variance_that_is_not_known():
    torch.manual_seed(0)
    vectors, taught = torch.randn(2, 5, 3, 8)
    taught[1, 2:] = 0  # a document of two sentences
    real = [(row, column) for row in range(5) for column in range(3) if row != 1 or column < 2]
    mean = sum(taught[place] for place in real) / len(real)
    distance = sum(float(((vectors[place] - taught[place]) ** 2).sum()) for place in real)
    spread = sum(float(((taught[place] - mean) ** 2).sum()) for place in real)
    assert distillation(vectors, taught).item() == pytest.approx(distance / spread, rel=1e-5)
    assert distillation(taught, taught).item() == 0
    assert distillation(mean.expand(5, 3, 8), taught).item() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("path", ["document_encoder", "both"])
def test_documents_sentences_and_queries_of_the_teacher_are_learned(
    corpus_folder, xlmr, teacher, in_float32, path, tmp_path
):
    recipe = PretrainRecipe(corpus="", output="", sentence_encoder=str(xlmr), architecture=ARCHITECTURE)
    model, tokenizer = build(recipe)
    model.eval()
    triples = Triples(corpus_folder, "train", symmetric=False)
    batch = collate([triples[index] for index in range(3)], triples.roles, tokenizer, query_path=path)
    embeddings = TwoPathEncoder(model, sentences=True)(batch.rows)
    loss = Distillation(teacher=teacher, weight=2.0)
    loss.begin(Start(model, tokenizer, tmp_path / "corpus", 60, torch.device("cpu")))
    losses = weighted_losses(BatchVectors(embeddings, batch, 0.05), [loss])
    original = HMDEForDocumentEmbedding.from_pretrained(teacher).eval()
    expected = []
    for kind, rows in batch.rows.items():
        if kind == QUERIES:
            one = torch.stack([model.hmde.encode_sentences(**rows)[1]])
            other = torch.stack([original.hmde.encode_sentences(**rows)[1]])
            expected.append(distillation(one, other))
        else:
            one, other = model(**rows), original(**rows)
            expected.append(distillation(one.pooler_output, other.pooler_output))
            if kind == DOCUMENTS:
                there = other.sentence_lengths > 0
                expected.append(distillation(one.last_hidden_state[there], other.last_hidden_state[there]))
    assert len(expected) == (4 if path == "both" else 3)
    assert set(losses) == {"distillation_loss"}
    torch.testing.assert_close(
        losses["distillation_loss"], 2 * torch.stack(expected).mean(), rtol=1e-3, atol=1e-3
    )  # they are kept in float16


@pytest.mark.slow
def test_a_student_comes_near_its_teacher_which_stays_as_it_was(corpus_folder, xlmr, teacher, tmp_path):
    before = fingerprint_of_folder(tmp_path / "teacher")
    changes = student(teacher, learning_rate=3e-3, epochs=6)
    changes |= {"log_with": "tensorboard", "eval_steps": 1000, "save_steps": 1000}
    pretrain.main(options(corpus_folder, xlmr, tmp_path / "student", **changes))
    losses = logged(tmp_path / "student", "distillation_loss")
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])
    assert not logged(tmp_path / "student", "document_loss")
    assert fingerprint_of_folder(tmp_path / "teacher") == before
    assert "It learned the vectors of *teacher*" in (tmp_path / "student" / "README.md").read_text(encoding="utf-8")
    model = AutoModel.from_pretrained(tmp_path / "student", trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "student", trust_remote_code=True)
    assert np.isfinite(model.encode_documents(["The cat sat. It was warm."], tokenizer)).all()


def test_a_run_does_not_go_on_with_another_teacher_in_the_same_folder(corpus_folder, teacher, tmp_path):
    arguments = options(corpus_folder, teacher, tmp_path / "student", **student(teacher), max_steps=1)
    pretrain.main(arguments)
    model = HMDEForDocumentEmbedding.from_pretrained(teacher)
    model.hmde.document_encoder.requires_grad_(False).layers[0].attention.value.weight.mul_(2)
    model.save_pretrained(teacher)
    with pytest.raises(ValueError, match=r"files of the teacher was '[0-9a-f]+' and is '[0-9a-f]+'; start anew"):
        pretrain.main([*arguments, "--resume", "true"])


def logged(output, name: str) -> list[float]:
    """The values of a run's log."""
    (log,) = (output.with_name(f"{output.name}-training") / "logs" / "pretrain").glob("events*")
    events = EventAccumulator(str(log)).Reload()
    return [event.value for event in events.Scalars(name)] if name in events.Tags()["scalars"] else []


@pytest.mark.slow
def test_two_processes_have_the_gradients_of_one(corpus_folder, xlmr, teacher, tmp_path, monkeypatch, in_float32):
    """With the other losses beside, chunks, documents of different numbers of sentences, and accumulation."""
    losses = {"info_nce": {"weight": 0.5}, "queries": {"weight": 0.5}, "distillation": {"teacher": teacher}}
    changes = {"losses": json.dumps(losses), "max_steps": 2, "max_tokens_per_chunk": 100}
    changes |= {"sentence_dropout": 0.0, "architecture": json.dumps(ARCHITECTURE)}
    arguments = partial(options, corpus_folder, xlmr, **changes)
    assert len(two_have_the_gradients_of_one(pretrain.main, monkeypatch, arguments, tmp_path)) == 2


@pytest.mark.parametrize(
    ("start", "name", "message"),
    [
        ("xlmr", "nowhere", "teacher: nowhere does not open"),
        ("xlmr", "xlmr", "is no HMDE"),
        ("labse", "teacher", "has other tokens than the student"),
    ],
)
def test_a_teacher_that_is_no_hmde_or_reads_other_tokens_is_refused_before_anything_is_written(
    corpus_folder, tmp_path, request, start, name, message
):
    teacher = name if name == "nowhere" else request.getfixturevalue(name)
    changes = {"losses.distillation.teacher": teacher}
    with pytest.raises(ValueError, match=message):
        pretrain.main(options(corpus_folder, request.getfixturevalue(start), tmp_path / "student", **changes))
    assert {path.name for path in tmp_path.iterdir()} <= {"teacher"}


def test_the_teacher_computes_the_vectors_of_a_text_once(corpus_folder, teacher, in_float32, tmp_path, monkeypatch):
    """Also for another run, which has other texts beside it, and for each of its sentences."""
    recipe = PretrainRecipe(corpus="", output="", sentence_encoder=teacher)
    model, tokenizer = build(recipe)
    triples = Triples(corpus_folder, "train", symmetric=False)
    rows = [
        collate([triples[index] for index in indices], triples.roles, tokenizer, query_path="both").rows
        for indices in ((0, 1), (1, 2), (2, 1, 0))
    ]
    encoded: list[int] = []
    encode = TwoPathEncoder.forward

    def counted(self, chunk):
        encoded.append(sum(len(rows["input_ids"]) for rows in chunk.values()))
        return encode(self, chunk)

    monkeypatch.setattr(TwoPathEncoder, "forward", counted)

    def vectors(batch, folder=tmp_path):
        return load_teacher(teacher, Start(model, tokenizer, folder / "corpus", 10_000, torch.device("cpu")))(batch)

    texts = {name: {tuple(row) for batch in rows[:2] for row in trimmed(batch[name])} for name in rows[0]}
    for batch in rows[:2]:
        vectors(batch)
    assert sum(encoded) == sum(map(len, texts.values()))
    found = vectors(rows[2])
    assert len(encoded) == 2
    for name, expected in vectors(rows[2], tmp_path / "anew").items():
        torch.testing.assert_close(found[name], expected, rtol=2e-3, atol=2e-3)
    assert len(encoded) == 3


def trimmed(rows):
    return [row[mask.bool()].tolist() for row, mask in zip(rows["input_ids"], rows["attention_mask"])]


@pytest.mark.slow
def test_a_process_waits_for_another_that_opens_the_vectors_too(tmp_path):
    """SQLite itself gives up at once where a second process wants to set the journal mode."""
    file = tmp_path / "vectors.sqlite"
    program = "import sys, pathlib, training.losses.teacher as t; t.Teacher(None, pathlib.Path(sys.argv[1]), 1)"
    with locked(file), sqlite3.connect(file) as opening:
        opening.execute("BEGIN EXCLUSIVE")
        other = subprocess.Popen(
            [sys.executable, "-c", program, str(file)], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True
        )
        assert other.stderr
        assert any("waiting for it" in line for line in other.stderr)
        opening.commit()
    assert other.communicate()[1] == ""
    assert other.returncode == 0
