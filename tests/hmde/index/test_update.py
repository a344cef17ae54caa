"""Updates: what is encoded again and what is not, and what killed processes and full disks leave behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

import hmde.index.ranking
import hmde.index.snapshot
import hmde.index.update
from hmde.__main__ import main
from hmde.documents.documents import Document, Documents
from hmde.index.encoder import Encoder
from hmde.index.index import Index
from hmde.index.precomputed import PrecomputedEmbeddings
from hmde.index.ranking import rank
from hmde.index.snapshot import open_snapshot
from hmde.index.update import Changes, update_index
from tests.hmde.small_index import CHANGED, TEXTS, CountingEncoder, check_index, documents_of, rows_of
from tests.paths import REPOSITORY

pytestmark = pytest.mark.lancedb


def update_one_by_one(folder: Path, model_folder: Path, *versions: dict[str, str]) -> None:
    """An update for each version of the documents, with a commit for each document."""
    hmde.index.update.DOCUMENTS_PER_COMMIT = 1
    encoder = Encoder.load(str(model_folder), "float32")
    for texts in versions:
        update_index(folder, documents_of(texts), encoder)


def update_until_call(folder: Path, model_folder: Path, function: str, call: int) -> None:
    """The process kills itself before the n-th call of a function of hmde.index.update."""
    calls = 0
    original = getattr(hmde.index.update, function)

    def counted(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)

    setattr(hmde.index.update, function, counted)
    update_one_by_one(folder, model_folder, CHANGED)


FILL_A_DISK = """
import json, subprocess, sys
import hmde.index.update
from hmde.documents.documents import Document
from hmde.index.encoder import Encoder
from hmde.index.snapshot import open_snapshot
from hmde.index.update import update_index

hmde.index.update.DOCUMENTS_PER_COMMIT = 100
encoder = Encoder.load(sys.argv[1], "float32")
documents = [Document(str(number), "", None, f"The cat sat on mat {number}. " * 20) for number in range(600)]
try:
    update_index("disk/index", documents, encoder, sentences=False)
except OSError as full:
    kept = len(open_snapshot("disk/index"))
    subprocess.run(["mount", "-o", "remount,size=9m", "disk"], check=True)
    print(json.dumps([str(full), kept, *update_index("disk/index", documents, encoder)]))
"""


@pytest.fixture(scope="module")
def in_another_process() -> Callable[..., BaseProcess]:
    """Starts a function with its arguments in a process that shares no thread with this one, as LanceDB asks for."""
    processes = multiprocessing.get_context("forkserver")
    # What the functions import, except LanceDB, which begins a thread that a fork would not have.
    processes.set_forkserver_preload(
        ["modeling_hmde", "transformers.models.bert.modeling_bert", "pytest", "pyarrow.dataset", "lance_namespace"]
    )

    def start(function: Callable[..., object], *arguments: object) -> BaseProcess:
        process = processes.Process(target=function, args=arguments)
        process.start()
        return process

    return start


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


def test_an_index_takes_precomputed_embeddings_and_encodes_the_rest(
    tmp_path: Path, model_folder: Path, counting: CountingEncoder
) -> None:
    file = tmp_path / "documents.jsonl"
    rows = [{"id": name, "text": text, "language": "de"} for name, text in TEXTS.items()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--model", str(model_folder), "--dtype", "float32"]  # those of `counting`
    main(["encode", str(file), str(tmp_path / "embeddings"), *options])
    embeddings = PrecomputedEmbeddings(tmp_path / "embeddings", str(model_folder))
    with file.open("a") as lines:
        lines.write(json.dumps({"id": "new", "text": "Der Hund schlief."}) + "\n")
    update_index(tmp_path / "other", Documents(file), counting)
    with pytest.raises(ValueError, match="make an index without sentences"):
        update_index(tmp_path / "other", Documents(file), counting, embeddings=embeddings)
    with pytest.raises(ValueError, match="sentences is True, but precomputed embeddings hold no sentences"):
        update_index(tmp_path / "index", Documents(file), counting, sentences=True, embeddings=embeddings)
    assert not (tmp_path / "index").exists()
    counting.encoded.clear()
    changes = update_index(tmp_path / "index", Documents(file), counting, embeddings=embeddings)
    assert changes == Changes(5, 0, 0, 0)
    assert [name.rpartition("#")[2] for name in counting.encoded] == ["new"]
    texts = {row["id"]: row["text"] for row in rows_of(tmp_path / "index")}
    assert sorted(texts.values()) == sorted([*TEXTS.values(), "Der Hund schlief."])
    check_index(tmp_path / "index", texts, counting)


def test_a_model_of_the_hub_is_kept_by_its_name_and_a_folder_by_its_whole_path(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hmde.index.encoder.load_hmde", lambda name, dtype: (encoder.model, encoder.tokenizer))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    assert Encoder.load("someone/hmde").name == "someone/hmde"
    assert Encoder.load("model").name == str(tmp_path / "model")


def test_the_next_documents_are_read_and_words_counted_while_the_model_computes(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {f"{name}.txt": text for name, text in TEXTS.items()}
    (tmp_path / "texts").mkdir()
    for name, text in texts.items():
        (tmp_path / "texts" / name).write_text(text)
    read, counted, document_words = Counter[str](), threading.Event(), hmde.index.update._words
    changed = threading.Condition()

    class Watched(Documents):
        def __iter__(self) -> Iterator[Document]:
            for document in super().__iter__():
                with changed:
                    read[document.id] += 1
                    changed.notify()
                yield document

    class Waiting(Encoder):
        def encode_with_sentences(self, documents: Sequence[Document]) -> tuple:
            assert counted.wait(60)
            following = [id for id in sorted(texts) if id > documents[0].id][:1]
            with changed:
                assert changed.wait_for(lambda: all(read[id] == 2 for id in following), 60)  # the first reading checks
            return super().encode_with_sentences(documents)

    def words(document: Document) -> str:
        counted.set()
        return document_words(document)

    monkeypatch.setattr(hmde.index.update, "DOCUMENTS_PER_COMMIT", 1)
    monkeypatch.setattr(hmde.index.update, "_words", words)
    update_index(tmp_path / "index", Watched(tmp_path / "texts"), Waiting(*encoder))
    check_index(tmp_path / "index", texts, encoder)


def test_an_update_without_changes_encodes_and_writes_nothing(tmp_path: Path, counting: CountingEncoder) -> None:
    update_index(tmp_path, documents_of(TEXTS), counting)
    files = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    counting.encoded.clear()
    assert update_index(tmp_path, documents_of(TEXTS), counting) == Changes(0, 0, 0, 4)
    assert counting.encoded == []
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == files


def test_each_of_several_new_titles_is_kept_without_encoding_and_a_new_text_or_language_with(
    tmp_path: Path, counting: CountingEncoder
) -> None:
    update_index(tmp_path, documents_of(TEXTS), counting)
    counting.encoded.clear()
    changed = [
        Document("кот", "title of кот", None, TEXTS["кот"]),
        Document("dog", "title of dog", None, "Der Hund schlief."),
        Document("cat", "title of cat", None, TEXTS["cat"]),
        Document("chat", "chat", "fr", TEXTS["chat"]),
    ]
    assert update_index(tmp_path, changed, counting) == Changes(0, 4, 0, 0)
    assert sorted(counting.encoded) == ["chat", "dog"]
    assert open_snapshot(tmp_path).documents([document.id for document in changed]) == changed
    check_index(tmp_path, {document.id: document.text for document in changed}, counting)


def test_what_is_renamed_or_copied_keeps_its_vectors(tmp_path: Path, counting: CountingEncoder) -> None:
    update_index(tmp_path, documents_of(TEXTS), counting)
    counting.encoded.clear()
    renamed = {"gatto": TEXTS["cat"], "copy": TEXTS["dog"], "chat": TEXTS["dog"], "кот": TEXTS["кот"]}
    assert update_index(tmp_path, documents_of(renamed), counting) == Changes(2, 1, 2, 1)
    assert counting.encoded == []
    check_index(tmp_path, renamed, counting)


def test_what_is_held_of_a_file_that_cannot_be_read_now_stays(tmp_path: Path, encoder: Encoder) -> None:
    (tmp_path / "documents").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "documents" / f"{name}.txt").write_text(f"The cat {name}.")
    index = Index(tmp_path / "index", encoder)
    index.update(Documents(tmp_path / "documents"))
    (tmp_path / "documents" / "a.txt").write_text("")  # as a file that is half copied
    (tmp_path / "documents" / "b.txt").unlink()
    documents = Documents(tmp_path / "documents")
    assert index.update(documents).removed == 1
    assert {row["id"]: row["text"] for row in rows_of(tmp_path / "index")} == {
        "a.txt": "The cat a.",
        "c.txt": "The cat c.",
    }
    assert [*documents.unreadable] == ["a.txt"]


# Each a step of an update before which the process is killed, and what the index holds then.
KILLS = [
    ("_replace", 1, TEXTS),
    ("_add", 1, TEXTS | {"dog": CHANGED["dog"]}),
    ("_remove", 2, {name: text for name, text in (TEXTS | CHANGED).items() if name != "cat"}),
]


@pytest.mark.parametrize(("function", "call", "state"), KILLS)
def test_a_process_killed_at_any_step_leaves_a_whole_index_that_the_next_run_completes(
    tmp_path: Path,
    model_folder: Path,
    encoder: Encoder,
    in_another_process: Callable[..., BaseProcess],
    function: str,
    call: int,
    state: dict[str, str],
) -> None:
    update_index(tmp_path / "index", documents_of(TEXTS), encoder)
    process = in_another_process(update_until_call, tmp_path / "index", model_folder, function, call)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    check_index(tmp_path / "index", state, encoder)
    update_index(tmp_path / "index", documents_of(CHANGED), encoder)
    check_index(tmp_path / "index", CHANGED, encoder)


@pytest.mark.slow
def test_readers_beside_a_writer_find_whole_versions_only(
    index_folder: Path, model_folder: Path, encoder: Encoder, in_another_process: Callable[..., BaseProcess]
) -> None:
    writer = in_another_process(update_one_by_one, index_folder, model_folder, *[CHANGED, TEXTS] * 4)
    reads = 0
    while writer.is_alive() or not reads:
        for hit in Index(index_folder, encoder).search("Le chat", 9, ranking="late"):
            assert hit.document.text in (TEXTS.get(hit.document.id), CHANGED.get(hit.document.id))
        reads += 1
    assert writer.exitcode == 0
    check_index(index_folder, TEXTS, encoder)


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_full_disk_ends_with_a_sentence_and_keeps_what_was_committed(tmp_path: Path, model_folder: Path) -> None:
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    (tmp_path / "disk").mkdir()
    command = f'mount -t tmpfs -o size=300k tmpfs disk && exec "{sys.executable}" -c "$0" "$1"'
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
    assert 0 < kept < 600
    assert changes == [600 - kept, 0, 0, kept, 0]


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


def test_what_cannot_become_an_index_is_refused_before_anything_is_encoded(
    tmp_path: Path, counting: CountingEncoder
) -> None:
    (tmp_path / "cat.txt").write_text("The cat.")
    with pytest.raises(ValueError, match=r"index lies in .* and would be read as documents; put it elsewhere"):
        update_index(tmp_path / "index", Documents(tmp_path), counting)
    with pytest.raises(TypeError, match="give a list or a Documents"):
        update_index(tmp_path / "index", iter(documents_of(TEXTS)), counting)
    with pytest.raises(ValueError, match="the id cat is used twice"):
        update_index(tmp_path / "index", documents_of(TEXTS) + documents_of(TEXTS), counting)
    assert counting.encoded == []
    assert not (tmp_path / "index").exists()


def test_a_file_that_changes_while_it_is_indexed_is_indexed_as_it_was_read(tmp_path: Path, encoder: Encoder) -> None:
    class Changing(list):
        """Documents of which one is rewritten, one goes and one comes between the first reading and the second."""

        readings = iter((documents_of(TEXTS), documents_of(CHANGED)))

        def __iter__(self) -> Iterator[Document]:
            return iter(next(self.readings))

    update_index(tmp_path, Changing(), encoder)
    check_index(tmp_path, CHANGED, encoder)


@pytest.mark.parametrize(("kept", "said"), [(False, "no sentence vectors"), (True, "sentence vectors")])
def test_an_index_keeps_sentences_or_none_as_it_began(tmp_path: Path, encoder: Encoder, kept: bool, said: str) -> None:
    update_index(tmp_path, documents_of(TEXTS), encoder, sentences=kept)
    assert update_index(tmp_path, documents_of(TEXTS), encoder) == Changes(0, 0, 0, 4)
    with pytest.raises(ValueError, match=f"keeps {said}, but sentences is {not kept}; make a new index"):
        update_index(tmp_path, documents_of(TEXTS), encoder, sentences=not kept)
    assert open_snapshot(tmp_path).keeps_sentences is kept


def test_metadata_that_python_hashes_alike_are_told_apart(tmp_path: Path, encoder: Encoder) -> None:
    for value, changes in ((-1.0, Changes(1, 0, 0, 0)), (-2, Changes(0, 1, 0, 0)), (-2.0, Changes(0, 0, 0, 1))):
        assert update_index(tmp_path, [Document("a", "", None, "The cat.", {"height": value})], encoder) == changes
    (row,) = rows_of(tmp_path)
    assert row["height"] == -2


@pytest.mark.parametrize(
    "word", ["d7a8fbb307d7809469ca9abcb0082e4f8d5651e46d3cdb762d02d0bf37c9e592", "გამოკვლევებისათვის"]
)
def test_a_long_word_is_found(tmp_path: Path, encoder: Encoder, word: str) -> None:
    update_index(tmp_path, documents_of({"a": f"The cat {word} sat.", "b": "The dog."}), encoder, sentences=False)
    assert rank(open_snapshot(tmp_path), word, encoder, "bm25").keys() == {"a"}


def test_the_words_of_a_text_without_end_are_counted_as_far_as_those_of_a_book(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hmde.index.update, "CHARACTERS_OF_WORDS", len("The cat sat."))
    update_index(
        tmp_path / "index", documents_of({"a": "The cat sat. A dog."}), Encoder.load(str(model_folder), "float32")
    )
    index = open_snapshot(tmp_path / "index")
    assert index.bm25(["cat"], 5).keys() == {"a"}
    assert not index.bm25(["dog"], 5)
