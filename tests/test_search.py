"""Search: what is encoded again and what is not, what a killed process leaves behind, and what is found."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import search.index
from modeling_hmde import Explanation, HMDEForDocumentEmbedding, HMDETokenizer, SentenceScore
from search.__main__ import main
from search.documents import Document, read_documents
from search.index import Changes, Encoder, Index, open_index, update_index

TEXTS = {
    "cat": "The cat sat on the mat. It was warm there!",
    "dog": "Der Hund sah die Katze. Sie lag in der Sonne.",
    "chat": "Le chat dort.",
    "кот": "Кот спит на ковре. Собака смотрит на него.",
}


def documents_of(texts: dict[str, str]) -> list[Document]:
    return [Document(name, name, None, text) for name, text in texts.items()]


@pytest.fixture(scope="module")
def model_folder(
    labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("models") / "hmde"
    make_model(labse).save_pretrained(folder)
    HMDETokenizer.from_sentence_encoder(str(labse)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(model_folder: Path) -> Encoder:
    return Encoder.load(str(model_folder))


class CountingEncoder(Encoder):
    """Remembers what it encoded."""

    encoded: list[str]

    def encode(self, documents: Sequence[Document], show_progress_bar: bool = False) -> np.ndarray:
        self.encoded.extend(document.id for document in documents)
        return super().encode(documents, show_progress_bar)


@pytest.fixture
def counting(encoder: Encoder) -> CountingEncoder:
    counting = CountingEncoder(*encoder)
    counting.encoded = []
    return counting


def check_index(folder: Path, texts: dict[str, str], encoder: Encoder) -> None:
    """The index holds these documents and no others, each with its own vector."""
    index = open_index(folder)
    assert {document.id: document.text for document in index.documents} == texts
    np.testing.assert_allclose(index.vectors, encoder.encode(index.documents), atol=1e-5)


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
    update_index(tmp_path, changed, counting)
    assert counting.encoded == ["dog"]
    assert set(open_index(tmp_path).documents) == set(changed)


# Each a place of search.index where a process can be killed, and whether the update has taken effect there.
KILLS = [
    ("pyarrow.parquet.write_table", 1, "old"),
    ("faiss.write_index", 1, "old"),
    ("os.replace", 1, "old"),
    ("shutil.rmtree", 1, "first commit"),
    ("faiss.write_index", 2, "first commit"),
    ("os.replace", 2, "first commit"),
    ("shutil.rmtree", 2, "second commit"),
    ("os.replace", 3, "second commit"),
]


@pytest.mark.parametrize(("function", "call", "state"), KILLS)
def test_a_process_killed_at_any_moment_leaves_a_whole_index_that_the_next_run_completes(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, function: str, call: int, state: str
) -> None:
    monkeypatch.setattr(search.index, "DOCUMENTS_PER_COMMIT", 1)
    update_index(tmp_path, documents_of(TEXTS), encoder)
    changed = {"chat": TEXTS["chat"], "dog": "Der Hund schlief.", "new": "猫在垫子上睡觉。"}

    def update_until_killed() -> None:
        calls = 0
        owner, name = function.rsplit(".", 1)
        module = {"pyarrow.parquet": pyarrow.parquet, "faiss": search.index.faiss, "os": os}.get(owner)
        module = module or search.index.shutil
        original = getattr(module, name)

        def counted(*args: object, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        setattr(module, name, counted)
        update_index(tmp_path, documents_of(changed), encoder)

    process = multiprocessing.get_context("fork").Process(target=update_until_killed)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    expected = {
        "old": TEXTS,
        "first commit": {"chat": TEXTS["chat"]},
        "second commit": {"chat": TEXTS["chat"], "dog": changed["dog"]},
    }
    check_index(tmp_path, expected[state], encoder)
    update_index(tmp_path, documents_of(changed), encoder)
    check_index(tmp_path, changed, encoder)
    assert len(list(tmp_path.glob("generation-*"))) == 1


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


def test_documents_are_ranked_by_cosine_and_explained_by_their_sentences(tmp_path: Path, encoder: Encoder) -> None:
    update_index(tmp_path, documents_of(TEXTS), encoder)
    hits = open_index(tmp_path).search("The cat", encoder, num_hits=3)
    (query,) = encoder.model.encode_queries(["The cat"], encoder.tokenizer)
    cosines = {
        name: float(encoder.encode([Document(name, name, None, text)])[0] @ query) for name, text in TEXTS.items()
    }
    assert [hit.document.id for hit in hits] == sorted(cosines, key=cosines.__getitem__, reverse=True)[:3]
    for hit in hits:
        assert hit.explanation.score == pytest.approx(cosines[hit.document.id], abs=1e-5)
        assert sum(sentence.score for sentence in hit.explanation.sentences) == pytest.approx(
            cosines[hit.document.id], abs=1e-5
        )


class SentencesInWords:
    """A model whose queries point right and to which a text is a list of the scores of its sentences."""

    def encode_queries(self, texts: list[str], tokenizer: object) -> np.ndarray:
        return np.array([[1.0, 0.0]], dtype=np.float32)

    def explain(
        self, query: str, documents: list[str], *args: object, scoring: str, **kwargs: object
    ) -> list[Explanation]:
        assert scoring == "maximum"
        scores = [sorted(map(float, text.split()), reverse=True) for text in documents]
        return [Explanation(found[0], [SentenceScore(0, 1, score) for score in found]) for found in scores]


def test_late_interaction_ranks_by_the_best_sentence_also_what_cosine_ranks_low() -> None:
    documents = documents_of({"near": "0.5 0.4", "nearer": "0.6", "far": "0.1 0.9"})
    vectors = np.array([[0.8, 0.6], [0.9, 0.4], [0.1, 0.99]], dtype=np.float32)
    encoder = Encoder("stub", SentencesInWords(), None)  # type: ignore[arg-type]
    hits = Index("stub", np.zeros(4), documents, vectors).search("?", encoder, num_hits=2, scoring="maximum")
    assert [(hit.document.id, hit.explanation.score) for hit in hits] == [("far", 0.9), ("nearer", 0.6)]


def test_a_folder_of_all_kinds_of_files_is_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "note.txt").write_text("Eine Notiz.", encoding="utf-8")
    (tmp_path / "read.md").write_text("# Title", encoding="utf-8")
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two", "concept_id": "b", "language": "fr"}\n')
    rows = pyarrow.table({"doc_id": ["x"], "title": ["X"], "text": ["three"]})
    pyarrow.parquet.write_table(rows, tmp_path / "b.parquet")
    assert read_documents(tmp_path, language="en") == [
        Document("a.jsonl#1", "1", "en", "one"),
        Document("a.jsonl#b", "b", "fr", "two"),
        Document("b.parquet#x", "X", "en", "three"),
        Document("read.md", "read", "en", "# Title"),
        Document("sub/note.txt", "note", "en", "Eine Notiz."),
    ]
    assert read_documents(tmp_path / "read.md") == [Document("read.md", "read", None, "# Title")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"\xff\xfe", r"a\.txt is not UTF-8"),
        ("a.jsonl", b'{"text": "one"}\n{', r"a\.jsonl, row 2 is no JSON"),
        ("a.jsonl", b"[1]", r"a\.jsonl, row 1 is no object"),
        ("a.jsonl", b'{"title": "one"}', r"a\.jsonl, row 1: there is no text"),
        ("a.jsonl", b'{"text": 1}', r"a\.jsonl, row 1: text is 1"),
        ("a.jsonl", b'{"text": "one", "id": "x"}\n{"text": "two", "id": "x"}', r"a\.jsonl#x is used twice"),
        ("a.parquet", b"PAR1", r"a\.parquet is no Parquet file"),
        ("a.png", b"", "holds no document"),
    ],
)
def test_what_cannot_be_read_is_named_before_anything_is_encoded(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_documents(tmp_path)


def test_the_terminal_indexes_and_answers_in_words_and_in_json(
    tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents, index = str(tmp_path / "documents"), str(tmp_path / "index")
    (tmp_path / "documents").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "documents" / f"{name}.txt").write_text(text, encoding="utf-8")
    main(["index", documents, index, "--model", str(model_folder)])
    assert capsys.readouterr().out == "4 added, 0 changed, 0 removed, 0 unchanged\n"
    main(["index", documents, index, "--json"])
    assert json.loads(capsys.readouterr().out) == {"added": 0, "changed": 0, "removed": 0, "unchanged": 4}
    main(["query", index, "The cat", "--hits", "2", "--sentences", "1", "--json"])
    hits = json.loads(capsys.readouterr().out)
    assert len(hits) == 2
    for hit in hits:
        (sentence,) = hit["sentences"]
        assert hit["text"][sentence["begin"] : sentence["end"]] == sentence["text"] != ""
    main(["query", index, "The cat", "--hits", "2", "--sentences", "1"])
    words = capsys.readouterr().out
    for hit in hits:
        assert hit["id"] in words
        assert hit["sentences"][0]["text"] in words
    main(["query", index, "The cat", "--late-interaction", "--json"])
    assert len(json.loads(capsys.readouterr().out)) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["query", "nowhere", "The cat"], "holds no index"),
        (["index", "nowhere", "index"], "nowhere is missing"),
        (["index", "documents", "index"], "--model FOLDER"),
        (["index", "documents", "documents/index"], "would index itself"),
        (["index", "documents", "index", "--model", "nowhere"], "no model folder"),
        (["query", "nowhere", "The cat", "--hits", "0"], "--hits must be"),
    ],
)
def test_the_terminal_says_what_is_wrong_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "cat.txt").write_text(TEXTS["cat"], encoding="utf-8")
    with pytest.raises(SystemExit, match=message):
        main(arguments)
