"""Search: what is encoded again and what is not, what a killed process leaves behind, and what is found."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import search.encode
import search.index
from benchmarks import index as benchmark
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from search.__main__ import main
from search.documents import Document, Documents
from search.embeddings import Embeddings
from search.index import Changes, Encoder, Ranking, gains_of_words, open_index, update_index
from tests.paths import REPOSITORY

TEXTS = {
    "cat": "The cat sat on the mat. It was warm there!",
    "dog": "Der Hund sah die Katze. Sie lag in der Sonne.",
    "chat": "Le chat dort.",
    "кот": "Кот спит на ковре. Собака смотрит на него.",
}
CHANGED = {"chat": TEXTS["chat"], "dog": "Der Hund schlief.", "new": "猫在垫子上睡觉。"}


def documents_of(texts: dict[str, str]) -> list[Document]:
    return [Document(name, name, None, text) for name, text in texts.items()]


@pytest.fixture(scope="module")
def encoder(model_folder: Path) -> Encoder:
    return Encoder.load(str(model_folder), "float32")


class CountingEncoder(Encoder):
    """Remembers what it encoded."""

    encoded: list[str]

    def encode(self, documents: Sequence[Document]) -> np.ndarray:
        self.encoded.extend(document.id for document in documents)
        return super().encode(documents)

    def encode_questions(self, questions: Sequence[str]) -> np.ndarray:
        self.encoded.extend(questions)
        return super().encode_questions(questions)


@pytest.fixture
def counting(encoder: Encoder) -> CountingEncoder:
    counting = CountingEncoder(*encoder)
    counting.encoded = []
    return counting


def rows_of(folder: Path) -> list[dict]:
    return open_index(folder).table.search().to_list()


def check_index(folder: Path, texts: dict[str, str], encoder: Encoder) -> None:
    """The index holds these documents and no others, each with its own vector, and finds each by its words."""
    rows = rows_of(folder)
    assert len(rows) == len(texts)
    assert {row["id"]: row["text"] for row in rows} == texts
    documents = [Document(row["id"], row["title"], row["language"], row["text"]) for row in rows]
    vectors = np.array([row["vector"] for row in rows]).reshape(len(rows), encoder.model.config.hidden_size)
    np.testing.assert_allclose(vectors, encoder.encode(documents), atol=1e-5)
    for document in documents:
        assert document.id in open_index(folder).rank(document.text, encoder, "words")


@pytest.fixture
def index_folder(tmp_path: Path, encoder: Encoder) -> Path:
    """An index of TEXTS that keeps sentences."""
    update_index(tmp_path / "index", documents_of(TEXTS), encoder, sentences=True)
    return tmp_path / "index"


@pytest.fixture(scope="module")
def in_another_process() -> Callable[..., BaseProcess]:
    """Starts a function with its arguments in a process that shares no thread with this one, as LanceDB asks for."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["modeling_hmde"])

    def start(function: Callable[..., object], *arguments: object) -> BaseProcess:
        process = processes.Process(target=function, args=arguments)
        process.start()
        return process

    return start


def update_one_by_one(folder: Path, model_folder: Path, *versions: dict[str, str]) -> None:
    """An update for each version of the documents, with a commit for each document."""
    search.index.DOCUMENTS_PER_COMMIT = 1
    encoder = Encoder.load(str(model_folder), "float32")
    for texts in versions:
        update_index(folder, documents_of(texts), encoder)


def update_until_call(folder: Path, model_folder: Path, function: str, call: int) -> None:
    """The process is killed before a function of search.index is called for this time."""
    calls = 0
    original = getattr(search.index, function)

    def counted(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)

    setattr(search.index, function, counted)
    update_one_by_one(folder, model_folder, CHANGED)


def update_for_seconds(folder: Path, model_folder: Path, seconds: float) -> None:
    """The process is killed wherever it is."""
    update_index(folder, documents_of(TEXTS), Encoder.load(str(model_folder), "float32"))
    threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGKILL]).start()
    update_one_by_one(folder, model_folder, *[CHANGED, TEXTS] * 100)


FILL_A_DISK = """
import json, subprocess, sys
from search.documents import Document
from search.index import Encoder, open_index, update_index

encoder = Encoder.load(sys.argv[1], "float32")
documents = [Document(str(number), "", None, f"The cat sat on mat {number}. " * 20) for number in range(3000)]
try:
    update_index("disk/index", documents, encoder)
except OSError as full:
    kept = len(open_index("disk/index"))
    subprocess.run(["mount", "-o", "remount,size=9m", "disk"], check=True)
    print(json.dumps([str(full), kept, *update_index("disk/index", documents, encoder)]))
"""


def test_only_new_and_changed_documents_are_encoded_and_removed_ones_are_dropped(
    tmp_path: Path, counting: CountingEncoder
) -> None:
    assert update_index(tmp_path, documents_of(TEXTS), counting) == Changes(4, 0, 0, 0)
    counting.encoded.clear()
    texts = TEXTS | {"dog": "Der Hund schlief.", "new": "猫在垫子上睡觉。"}
    del texts["cat"]
    assert update_index(tmp_path, documents_of(texts), counting) == Changes(1, 1, 1, 2)
    assert sorted(counting.encoded) == ["dog", "new"]
    check_index(tmp_path, texts, counting)


def test_an_index_takes_the_embeddings_that_there_are_and_encodes_the_rest(
    tmp_path: Path, model_folder: Path, counting: CountingEncoder
) -> None:
    file = tmp_path / "documents.jsonl"
    rows = [{"id": name, "text": text, "language": "de"} for name, text in TEXTS.items()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {
        "model": model_folder,
        "documents": file,
        "output": tmp_path / "embeddings",
        "language_column": "language",
        "dtype": "float32",  # which `counting` has, whatever the processor multiplies
    }
    search.encode.main([f"--{name}={value}" for name, value in options.items()])
    embeddings = Embeddings(tmp_path / "embeddings", str(model_folder))
    with file.open("a") as lines:
        lines.write(json.dumps({"id": "new", "text": "Der Hund schlief."}) + "\n")
    changes = update_index(tmp_path / "index", Documents(file), counting, embeddings=embeddings)
    assert changes == Changes(5, 0, 0, 0)
    assert [name.rpartition("#")[2] for name in counting.encoded] == ["new"]
    texts = {row["id"]: row["text"] for row in rows_of(tmp_path / "index")}
    assert sorted(texts.values()) == sorted([*TEXTS.values(), "Der Hund schlief."])
    check_index(tmp_path / "index", texts, counting)


def test_an_update_without_changes_encodes_and_writes_nothing(tmp_path: Path, counting: CountingEncoder) -> None:
    update_index(tmp_path, documents_of(TEXTS), counting)
    files = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    counting.encoded.clear()
    assert update_index(tmp_path, documents_of(TEXTS), counting) == Changes(0, 0, 0, 4)
    assert counting.encoded == []
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == files


def test_a_new_title_is_kept_without_encoding_and_a_new_language_with(
    tmp_path: Path, counting: CountingEncoder
) -> None:
    update_index(tmp_path, documents_of(TEXTS), counting)
    counting.encoded.clear()
    changed = documents_of(TEXTS)
    changed[0] = Document("cat", "Another title", None, TEXTS["cat"])
    changed[1] = Document("dog", "dog", "de", TEXTS["dog"])
    assert update_index(tmp_path, changed, counting) == Changes(0, 2, 0, 2)
    assert counting.encoded == ["dog"]
    assert set(open_index(tmp_path).documents(list(TEXTS))) == set(changed)
    check_index(tmp_path, TEXTS, counting)


def test_a_reader_keeps_the_version_that_it_opened(tmp_path: Path, encoder: Encoder) -> None:
    update_index(tmp_path, documents_of(TEXTS), encoder)
    before = open_index(tmp_path)
    update_index(tmp_path, documents_of(CHANGED), encoder)
    update_index(tmp_path, documents_of({"new": CHANGED["new"]}), encoder)
    assert [hit.document.text for hit in before.search("Hund", encoder, ranking="words")] == [TEXTS["dog"]]
    assert set(before.rank("Le chat", encoder)) == set(TEXTS)
    assert set(open_index(tmp_path).rank("Le chat", encoder)) == {"new"}


# Each a step of an update before which the process is killed, and what the index holds then.
STATES = {
    "old": TEXTS,
    "one commit": TEXTS | {"dog": CHANGED["dog"]},
    "two commits": TEXTS | CHANGED,
    "one removed": {name: text for name, text in (TEXTS | CHANGED).items() if name != "cat"},
    "new": CHANGED,
}
KILLS = [
    ("_known", 1, "old"),
    ("_replace", 1, "old"),
    ("_encoded", 1, "old"),
    ("_add", 1, "one commit"),
    ("_encoded", 2, "one commit"),
    ("_in", 2, "two commits"),
    ("_in", 3, "one removed"),
    ("_tidy", 1, "new"),
]


@pytest.mark.parametrize(("function", "call", "state"), KILLS)
def test_a_process_killed_at_any_step_leaves_a_whole_index_that_the_next_run_completes(
    tmp_path: Path,
    model_folder: Path,
    encoder: Encoder,
    in_another_process: Callable[..., BaseProcess],
    function: str,
    call: int,
    state: str,
) -> None:
    update_index(tmp_path / "index", documents_of(TEXTS), encoder)
    process = in_another_process(update_until_call, tmp_path / "index", model_folder, function, call)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    check_index(tmp_path / "index", STATES[state], encoder)
    update_index(tmp_path / "index", documents_of(CHANGED), encoder)
    check_index(tmp_path / "index", CHANGED, encoder)


@pytest.mark.parametrize("seconds", [0.05, 0.19, 0.33])
def test_a_process_killed_at_any_moment_leaves_whole_documents(
    tmp_path: Path,
    model_folder: Path,
    encoder: Encoder,
    in_another_process: Callable[..., BaseProcess],
    seconds: float,
) -> None:
    process = in_another_process(update_for_seconds, tmp_path / "index", model_folder, seconds)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    held = {row["id"]: row["text"] for row in rows_of(tmp_path / "index")}
    assert all(text in (TEXTS.get(id), CHANGED.get(id)) for id, text in held.items())
    check_index(tmp_path / "index", held, encoder)
    update_index(tmp_path / "index", documents_of(CHANGED), encoder)
    check_index(tmp_path / "index", CHANGED, encoder)


def test_readers_beside_a_writer_find_whole_versions_only(
    index_folder: Path, model_folder: Path, encoder: Encoder, in_another_process: Callable[..., BaseProcess]
) -> None:
    writer = in_another_process(update_one_by_one, index_folder, model_folder, *[CHANGED, TEXTS] * 4)
    reads = 0
    while writer.is_alive() or not reads:
        for hit in open_index(index_folder).search("Le chat", encoder, 9, "late"):
            assert hit.document.text in (TEXTS.get(hit.document.id), CHANGED.get(hit.document.id))
        reads += 1
    assert writer.exitcode == 0
    check_index(index_folder, TEXTS, encoder)


def test_of_several_writers_one_writes_and_the_others_wait(
    tmp_path: Path, model_folder: Path, encoder: Encoder, in_another_process: Callable[..., BaseProcess]
) -> None:
    versions = (TEXTS, TEXTS, TEXTS | CHANGED)
    writers = [in_another_process(update_one_by_one, tmp_path / "index", model_folder, texts) for texts in versions]
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    held = {row["id"]: row["text"] for row in rows_of(tmp_path / "index")}
    assert held in versions
    check_index(tmp_path / "index", held, encoder)


def test_a_full_disk_ends_with_a_sentence_and_keeps_what_was_committed(tmp_path: Path, model_folder: Path) -> None:
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    (tmp_path / "disk").mkdir()
    command = f'mount -t tmpfs -o size=700k tmpfs disk && exec "{sys.executable}" -c "$0" "$1"'
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", command, FILL_A_DISK, model_folder],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    message, kept, *changes = json.loads(done.stdout)
    assert "the disk of disk/index is full; make room and index again: what was committed is kept" in message
    assert 0 < kept < 3000
    assert changes == [3000 - kept, 0, 0, kept]


@pytest.mark.parametrize("harm", ["cut", "remove"])
def test_damaged_files_are_named_with_the_way_to_repair_or_harm_nothing(
    tmp_path: Path, index_folder: Path, encoder: Encoder, harm: str
) -> None:
    copy = tmp_path / "copy"
    refused: list[str] = []
    for file in sorted(path for path in index_folder.rglob("*") if path.is_file()):
        shutil.copytree(index_folder, copy, dirs_exist_ok=False)
        damaged = copy / file.relative_to(index_folder)
        if harm == "cut":
            os.truncate(damaged, file.stat().st_size // 2)
        else:
            damaged.unlink()
        for ranking in ("vector", "words", "late"):
            try:
                hits = open_index(copy).search("Le chat", encoder, 4, ranking)
                assert all(hit.document.text == TEXTS[hit.document.id] for hit in hits)
            except ValueError as error:
                refused.append(str(error))
        shutil.rmtree(copy)
    assert refused
    for message in refused:
        assert message.startswith(f"{copy} is damaged or not complete")
        assert message.endswith("remove the folder and index them again")


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path, encoder: Encoder) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not empty and holds no index"):
        update_index(tmp_path, documents_of(TEXTS), encoder)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_index_has_the_mode_of_other_folders(tmp_path: Path, encoder: Encoder) -> None:
    update_index(tmp_path / "index", documents_of(TEXTS), encoder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    for path in (tmp_path / "index").rglob("*"):
        like = tmp_path / "other" if path.is_dir() else tmp_path / "other" / "file"
        assert path.stat().st_mode == like.stat().st_mode, path


def test_documents_that_can_be_read_only_once_and_ids_that_come_twice_are_refused(
    tmp_path: Path, counting: CountingEncoder
) -> None:
    with pytest.raises(TypeError, match="give a list or a Documents"):
        update_index(tmp_path / "index", iter(documents_of(TEXTS)), counting)
    with pytest.raises(ValueError, match="the id cat is used twice"):
        update_index(tmp_path / "index", documents_of(TEXTS) + documents_of(TEXTS), counting)
    assert counting.encoded == []
    assert not (tmp_path / "index").exists()


def test_an_index_made_by_another_model_is_refused(
    tmp_path: Path, labse: Path, encoder: Encoder, make_model: Callable[..., HMDEForDocumentEmbedding]
) -> None:
    update_index(tmp_path, documents_of(TEXTS), encoder)
    other_weights = Encoder("other", make_model(labse, document_norm="pre"), encoder.tokenizer)
    shorter = HMDETokenizer.from_sentence_encoder(str(labse), max_sentences=4)
    prompted = HMDETokenizer.from_sentence_encoder(str(labse), sentence_prompt="the")
    others = [other_weights, *(encoder._replace(name="other", tokenizer=other) for other in (shorter, prompted))]
    for other in others:
        with pytest.raises(ValueError, match=r"another model .* than other"):
            update_index(tmp_path, documents_of(TEXTS | {"new": "The dog."}), other)
        with pytest.raises(ValueError, match="new index in another folder"):
            open_index(tmp_path).check(other)
    check_index(tmp_path, TEXTS, encoder)


@pytest.mark.parametrize("sentences", [False, True])
def test_documents_are_ranked_by_cosine_and_explained_by_their_sentences(
    tmp_path: Path, encoder: Encoder, sentences: bool
) -> None:
    update_index(tmp_path, documents_of(TEXTS), encoder, sentences=sentences)
    hits = open_index(tmp_path).search("The cat", encoder, num_hits=3, ranking="vector")
    (query,) = encoder.model.encode_queries(["The cat"], encoder.tokenizer)
    cosines = {
        name: float(encoder.encode([Document(name, name, None, text)])[0] @ query) for name, text in TEXTS.items()
    }
    assert [hit.document.id for hit in hits] == sorted(cosines, key=cosines.__getitem__, reverse=True)[:3]
    for hit in hits:
        assert hit.score == pytest.approx(cosines[hit.document.id], abs=1e-5)
        assert sum(sentence.score for sentence in hit.explanation.sentences) == pytest.approx(hit.score, abs=1e-5)


class NamedVectors(Encoder):
    """Gives a document, and a question, the vector of the number that it is."""

    vectors: np.ndarray

    def encode(self, documents: Sequence[Document]) -> np.ndarray:
        return self.vectors[[int(document.text) for document in documents]]

    def encode_questions(self, questions: Sequence[str]) -> np.ndarray:
        return self.vectors[[int(question) for question in questions]]


def test_many_documents_are_compared_partition_by_partition_with_exact_cosines(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, languages = 1000, ["de", "en", "fr"]
    monkeypatch.setattr(search.index, "APPROXIMATE_FROM", count)
    monkeypatch.setattr(search.index, "PARTITIONS", 16)
    monkeypatch.setattr(search.index, "NEAREST_PARTITIONS", 4)
    many = NamedVectors(*encoder)
    vectors = np.random.default_rng(0).standard_normal((count, encoder.model.config.hidden_size)).astype(np.float32)
    many.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    documents = [
        Document(f"{number:03}", "", "fr" if number % 100 == 0 else languages[number % 2], f"{number}")
        for number in range(count)
    ]

    def indexes() -> set[str]:
        return {column for kept in open_index(tmp_path).table.list_indices() for column in kept.columns}

    update_index(tmp_path, documents[:-1], many)
    assert indexes() == {"id", "words"}
    update_index(tmp_path, documents, many)
    assert indexes() == {"id", "words", "vector"}

    index, hits = open_index(tmp_path), 0
    for number in range(0, count, 50):
        exact = {document.id: float(cosine) for document, cosine in zip(documents, many.vectors @ many.vectors[number])}
        nearest = sorted(exact, key=exact.__getitem__, reverse=True)[:10]
        found = index.rank(f"{number}", many, "vector", 10)
        hits += len({*found} & {*nearest})
        assert found == pytest.approx({id: exact[id] for id in found}, abs=1e-5)
        french = index.rank(f"{number}", many, "vector", 10, ["fr"])
        assert set(french) == {f"{other:03}" for other in range(0, count, 100)}  # in all partitions
    assert 0.5 < hits / (10 * count / 50) < 1  # of vectors without any order, a quarter of which are looked at

    update_index(tmp_path, documents[100:], many)
    assert "007" not in open_index(tmp_path).rank("7", many, "vector")
    assert next(iter(open_index(tmp_path).rank("107", many, "vector"))) == "107"


@pytest.mark.parametrize("sentences", [False, True])
def test_late_ranks_the_best_by_hybrid_again_with_their_best_sentence(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, sentences: bool
) -> None:
    update_index(tmp_path, documents_of(TEXTS), encoder, sentences=sentences)
    index = open_index(tmp_path)
    explanations = encoder.model.explain("The cat", list(TEXTS.values()), encoder.tokenizer, scoring="maximum")
    expected = dict(zip(TEXTS, explanations))
    cosines, hybrid = (index.rank("The cat", encoder, ranking) for ranking in ("vector", "hybrid"))
    scores = {id: hybrid[id] + (expected[id].score - cosines[id]) / 2 for id in TEXTS}
    best = sorted(TEXTS, key=lambda id: -scores[id])
    assert index.rank("The cat", encoder, "late") == pytest.approx(scores, abs=1e-5)
    assert list(index.rank("The cat", encoder, "late")) == best
    for hit in index.search("The cat", encoder, 2, "late"):
        assert hit.score == pytest.approx(scores[hit.document.id], abs=1e-5)
        explanation = expected[hit.document.id]
        assert hit.explanation.score == pytest.approx(explanation.score, abs=1e-5)
        for found, wanted in zip(hit.explanation.sentences, explanation.sentences, strict=True):
            assert found == pytest.approx(wanted, abs=1e-5)
    monkeypatch.setattr(search.index, "CANDIDATES", 2)
    hybrid = index.rank("The cat", encoder, "hybrid", 2)
    scores = {id: score + (expected[id].score - cosines[id]) / 2 for id, score in hybrid.items()}
    assert index.rank("The cat", encoder, "late", 2) == pytest.approx(scores, abs=1e-5)
    assert list(index.rank("The cat", encoder, "late", 2)) == sorted(scores, key=lambda id: -scores[id])


@pytest.mark.parametrize("ranking", get_args(Ranking))
def test_a_question_is_encoded_once_or_not_at_all(
    index_folder: Path, counting: CountingEncoder, ranking: Ranking
) -> None:
    index = open_index(index_folder)
    expected = index.rank("Le chat", counting, ranking)
    assert counting.encoded == ["Le chat"] * (ranking != "words")
    *_, vector = counting.encode_questions(["The cat sat on the mat.", "Le chat"])
    counting.encoded.clear()
    assert index.rank("Le chat", counting, ranking, vector=vector) == pytest.approx(expected, abs=1e-6)
    assert counting.encoded == []
    index.search("Le chat", counting, ranking=ranking)
    assert counting.encoded == ["Le chat"]


def bm25(question: list[str], documents: dict[str, list[str]]) -> dict[str, float]:
    """As Lucene computes it, with k1 = 1.2 and b = 0.75, over documents that have words."""
    mean = sum(map(len, documents.values())) / max(len(documents), 1)
    scores = {}
    for id, words in documents.items():
        counts = Counter(words)
        for term in set(question) & set(words):
            containing = sum(term in other for other in documents.values())
            idf = math.log(1 + (len(documents) - containing + 0.5) / (containing + 0.5))
            saturated = counts[term] * 2.2 / (counts[term] + 1.2 * (0.25 + 0.75 * len(words) / mean))
            scores[id] = scores.get(id, 0) + idf * saturated
    return scores


@settings(max_examples=30)
@given(st.lists(st.text("abc ", max_size=12), min_size=1, max_size=20), st.text("abcd ", max_size=8))
def test_words_are_ranked_by_bm25(
    tmp_path_factory: pytest.TempPathFactory, encoder: Encoder, texts: list[str], question: str
) -> None:
    folder = tmp_path_factory.mktemp("words")
    update_index(folder, [Document(f"{place:02}", "", None, text) for place, text in enumerate(texts)], encoder)
    words = {f"{place:02}": text.split() for place, text in enumerate(texts) if text.split()}
    found = open_index(folder).rank(question, encoder, "words")
    assert found == pytest.approx(bm25(question.split(), words), abs=1e-4)
    shutil.rmtree(folder)


def test_a_question_finds_the_stems_of_every_language(tmp_path: Path, encoder: Encoder) -> None:
    documents = [
        Document("houses", "", "en", "Two houses stood there."),
        Document("katze", "", "de", "Die Katze schlief."),
        Document("zh", "", "zh", "猫在垫子上睡觉。"),
        Document("plain", "", None, "Katzen"),
    ]
    update_index(tmp_path, documents, encoder)
    index = open_index(tmp_path)
    assert set(index.rank("a house", encoder, "words")) == {"houses"}
    assert set(index.rank("Katzen", encoder, "words")) == {"katze", "plain"}
    assert set(index.rank("睡觉", encoder, "words")) == {"zh"}
    assert index.rank("?!", encoder, "words") == {}
    assert set(index.rank("Katzen", encoder, "hybrid", languages=["de"])) == {"katze"}
    assert set(index.rank("Katzen", encoder, "vector", languages=["de", "zh"])) == {"katze", "zh"}
    with pytest.raises(ValueError, match="no documents in fr; their languages are: de, en, zh"):
        index.rank("Katzen", encoder, languages=["fr"])


scores_by_id = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.01, 30), max_size=6)


@given(scores_by_id, scores_by_id)
def test_words_add_a_tenth_of_the_distance_of_cosines_at_most(
    words: dict[str, float], cosines: dict[str, float]
) -> None:
    gains = gains_of_words(words, cosines)
    if not words or not cosines:
        assert gains == {}
        return
    apart = max(cosines.values()) - min(cosines.values())
    assert gains.keys() == words.keys()
    for id, gain in gains.items():
        assert gain == pytest.approx(apart / 10 * words[id] / max(words.values()))


def test_hybrid_finds_by_words_what_is_not_near_and_ranks_it_by_its_cosine(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search.index, "CANDIDATES", 2)
    texts = TEXTS | {"rare": "Zzyzx. " + TEXTS["dog"]}
    update_index(tmp_path, documents_of(texts), encoder)
    index = open_index(tmp_path)
    question = "Zzyzx chat"
    cosines = index.rank(question, encoder, "vector")
    words = index.rank(question, encoder, "words")
    assert set(words) == {"rare", "chat"}
    near = list(cosines)[:2]
    apart = cosines[near[0]] - cosines[near[1]]
    gains = {id: apart / 10 * score / max(words.values()) for id, score in words.items()}
    expected = {id: cosines[id] + gains.get(id, 0) for id in {*near, *words}}
    assert "rare" not in near
    best = dict(sorted(expected.items(), key=lambda item: -item[1])[:2])
    assert index.rank(question, encoder, "hybrid", 2) == pytest.approx(best, abs=1e-5)
    assert index.rank("!?", encoder, "hybrid", 2) == pytest.approx(index.rank("!?", encoder, "vector", 2))


def test_the_benchmark_makes_an_index_of_random_vectors_and_queries_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search.index, "APPROXIMATE_FROM", search.index.APPROXIMATE_FROM)  # which `make` sets
    assert benchmark.make(tmp_path, documents=100, sentences=2).startswith("making")
    assert benchmark.update(tmp_path, documents=100, sentences=2).startswith(f"adding {benchmark.BLOCK} ")
    assert len(open_index(tmp_path)) == 100 + benchmark.BLOCK
    for ranking in benchmark.RANKINGS:
        assert benchmark.query(tmp_path, ranking, None, queries=2).startswith(ranking)
    assert benchmark.query(tmp_path, "vector", ["de"], queries=2).startswith("vector de ")


def test_the_benchmark_counts_how_many_of_the_nearest_documents_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search.index, "APPROXIMATE_FROM", search.index.APPROXIMATE_FROM)  # which `make` sets
    benchmark.make(tmp_path, documents=3000, sentences=0)
    for languages in (None, ["de"]):
        assert "1.000 of the 10 nearest" in benchmark.recall(tmp_path, languages, queries=4)
    rank = search.index.Index.rank
    monkeypatch.setattr(search.index.Index, "rank", lambda *asked: dict(list(rank(*asked).items())[:7]))
    assert "0.700 of the 10 nearest" in benchmark.recall(tmp_path, None, queries=4)


def read(source: Path, language: str | None = None) -> list[Document]:
    return list(Documents(source, language))


def test_a_folder_of_all_kinds_of_files_is_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "note.TXT").write_text("Eine Notiz.", encoding="utf-8-sig")
    (tmp_path / "read.md").write_text("# Title", encoding="utf-8")
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n\n \n{"text": "two", "concept_id": "b", "language": "fr"}\n')
    rows = pyarrow.table({"doc_id": ["x"], "title": ["X"], "text": ["three"], "other": [b""]})
    pyarrow.parquet.write_table(rows, tmp_path / "b.parquet")
    assert read(tmp_path, language="en") == [
        Document("a.jsonl#1", "1", "en", "one"),
        Document("a.jsonl#b", "b", "fr", "two"),
        Document("b.parquet#x", "X", "en", "three"),
        Document("read.md", "read", "en", "# Title"),
        Document("sub/note.TXT", "note", "en", "Eine Notiz."),
    ]
    assert read(tmp_path / "read.md") == [Document("read.md", "read", None, "# Title")]


def test_linked_folders_are_read_once_and_broken_links_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.txt").write_text("one")
    source = tmp_path / "source"
    source.mkdir()
    (source / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "round").symlink_to(source)
    (source / "broken.txt").symlink_to(tmp_path / "nowhere")
    os.mkfifo(source / "pipe.md")
    assert [document.id for document in read(source)] == ["linked/a.txt"]
    for name in ("broken.txt", "pipe.md"):
        assert f"{name} is no file that can be read" in caplog.text


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    texts = ["one\u2028two\u0085three\x1cfour", "five\r"]
    lines = (json.dumps({"text": text}, ensure_ascii=False) for text in texts)
    (tmp_path / "a.jsonl").write_text("\r\n".join(lines) + "\r\n", encoding="utf-8", newline="")
    assert [document.text for document in read(tmp_path)] == texts


def test_a_lone_surrogate_anywhere_does_not_stop_an_index(tmp_path: Path, encoder: Encoder) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / os.fsdecode(b"caf\xe9.txt")).write_text("The cat.")
    with (source / os.fsdecode(b"th\xe9.parquet")).open("wb") as file:  # pyarrow writes to no such name
        pyarrow.parquet.write_table(pyarrow.table({"text": ["Le chat dort."]}), file)
    row = {"id": "\ud800", "title": "\udfff", "language": "\ud9ff", "text": "The cat \ud800 sat. \ud83d\ude00"}
    (source / "a.jsonl").write_text(json.dumps(row))
    update_index(tmp_path / "index", Documents(source), encoder, sentences=True)
    hits = open_index(tmp_path / "index").search("The cat", encoder, ranking="late")
    assert {hit.document for hit in hits} == {
        Document("a.jsonl#\ufffd", "\ufffd", "\ufffd", "The cat \ufffd sat. \U0001f600"),
        Document("caf\\xe9.txt", "caf\\xe9", None, "The cat."),
        Document("th\\xe9.parquet#1", "1", None, "Le chat dort."),
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"caf\xe9", r"a\.txt is not UTF-8 \(byte 3 is 0xe9\)"),
        ("a.jsonl", b'{"text": "one"}\n{"text": "\xff"}', r"a\.jsonl, row 2 is not UTF-8 \(byte 10 is 0xff\)"),
        ("a.jsonl", b'{"text": "one"}\n{', r"a\.jsonl, row 2 is no JSON"),
        ("a.jsonl", b"[" * 100_000, r"a\.jsonl, row 1 is no JSON"),
        ("a.jsonl", b"[1]", r"a\.jsonl, row 1 is no object"),
        ("a.jsonl", b'{"title": "one"}', r"a\.jsonl, row 1: there is no text"),
        ("a.jsonl", b'{"text": 1}', r"a\.jsonl, row 1: text is 1"),
        ("a.jsonl", b'{"text": "one", "id": [1]}', r"a\.jsonl, row 1: the id is \[1\]"),
        ("a.jsonl", b'{"text": "one", "id": "x"}\n{"text": "two", "id": "x"}', r"a\.jsonl#x is used twice"),
        ("a.parquet", b"PAR1", r"a\.parquet is no Parquet file"),
        ("a.parquet", b"", r"a\.parquet is no Parquet file"),
        ("a.png", b"", "holds no document"),
    ],
)
def test_what_cannot_be_read_is_named_before_anything_is_encoded(
    tmp_path: Path, counting: CountingEncoder, name: str, content: bytes, message: str
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "0.txt").write_text("The cat.")
    if name == "a.png":
        (tmp_path / "source" / "0.txt").unlink()
    (tmp_path / "source" / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        update_index(tmp_path / "index", Documents(tmp_path / "source"), counting)
    assert counting.encoded == []
    assert not (tmp_path / "index").exists()


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.txt", "a.jsonl", "a.parquet"):
        (tmp_path / name).touch()

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        with monkeypatch.context() as patch:  # root may read everything
            patch.setattr(Path, "open", refuse)
            patch.setattr("pyarrow.parquet.ParquetFile", refuse)
            with pytest.raises(ValueError, match=rf"{name} cannot be read: Permission denied"):
                read(tmp_path / name)


def test_a_file_that_changes_while_it_is_indexed_is_indexed_as_it_was_read(tmp_path: Path, encoder: Encoder) -> None:
    class Changing(list):
        """Documents of which one is rewritten, one goes and one comes between the first reading and the second."""

        readings = iter((documents_of(TEXTS), documents_of(CHANGED)))

        def __iter__(self) -> Iterator[Document]:
            return iter(next(self.readings))

    update_index(tmp_path, Changing(), encoder)
    check_index(tmp_path, CHANGED, encoder)


def test_the_terminal_indexes_and_answers_in_words_and_in_json(
    tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents, index = str(tmp_path / "documents"), str(tmp_path / "index #1 %20 ключ")
    (tmp_path / "documents").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "documents" / f"{name}.txt").write_text(text, encoding="utf-8")
    main(["index", documents, index, "--model", str(model_folder), "--dtype", "float32"])
    assert capsys.readouterr().out == "4 added, 0 changed, 0 removed, 0 unchanged\n"
    main(["index", documents, index, "--json", "true", "--dtype", "float32"])
    assert json.loads(capsys.readouterr().out) == {"added": 0, "changed": 0, "removed": 0, "unchanged": 4}
    main(["query", index, "The cat", "--hits", "2", "--sentences", "1", "--json", "true", "--dtype", "float32"])
    hits = json.loads(capsys.readouterr().out)
    assert len(hits) == 2
    for hit in hits:
        (sentence,) = hit["sentences"]
        assert hit["text"][sentence["begin"] : sentence["end"]] == sentence["text"] != ""
    main(["query", index, "The cat", "--hits", "2", "--sentences", "1", "--dtype", "float32"])
    words = capsys.readouterr().out
    for hit in hits:
        assert hit["id"] in words
        assert hit["sentences"][0]["text"] in words
    for ranking, count in (("late", 4), ("hybrid", 4), ("words", 1)):
        main(["query", index, "chat", "--ranking", ranking, "--json", "true", "--dtype", "float32"])
        assert len(json.loads(capsys.readouterr().out)) == count


def test_nothing_in_a_document_commands_the_terminal(
    tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "cat \x1b[2J\x1b]52;c;aGk=\x07 \x9b2J\x08\r\x7f sat"
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": f"id {evil}", "title": f"title {evil}", "text": evil}))
    index = str(tmp_path / "index")
    main(["index", str(tmp_path / "a.jsonl"), index, "--model", str(model_folder), "--dtype", "float32"])
    main(["query", index, "cat", "--dtype", "float32"])
    main(["query", index, "cat", "--json", "true", "--dtype", "float32"])
    printed = capsys.readouterr().out
    assert not {character for character in printed if not character.isprintable()} - {"\n"}
    assert json.loads(printed[printed.index("[\n") :])[0]["text"] == evil
    (tmp_path / "b\x1b[2J.jsonl").write_text("{")
    with pytest.raises(SystemExit) as stopped:
        main(["index", str(tmp_path / "b\x1b[2J.jsonl"), index, "--dtype", "float32"])
    assert "b\\x1b[2J.jsonl, row 1 is no JSON" in str(stopped.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["query", "nowhere", "The cat"], "holds no index"),
        (["index", "nowhere", "index"], "--model FOLDER"),
        (["index", "nowhere", "index", "--model", "{model}"], "nowhere is missing"),
        (["index", "documents", "documents/index"], "would index itself"),
        (["index", "documents", "index", "--model", "nowhere"], "no model folder"),
        (["query", "nowhere", "The cat", "--hits", "0"], "--hits must be"),
        (["query", "nowhere", "The cat", "--top", "1"], "unrecognized arguments: --top 1"),
        (["query", "nowhere", "The cat", "--ranking", "best"], "Got value: best"),
        (["query", "nowhere"], "required: query.question"),
        (["index", "documents", "file", "--model", "{model}"], "Not a directory"),
    ],
)
def test_the_terminal_says_in_a_line_what_is_wrong_and_the_way_out(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "cat.txt").write_text(TEXTS["cat"], encoding="utf-8")
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match=message) as stopped:
        main([argument.format(model=model_folder) for argument in arguments])
    assert str(stopped.value).startswith("error: ")
    assert "\n" not in str(stopped.value)
