"""Documents from files of all kinds, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from hmde.documents.documents import Columns, Document, Documents
from hmde.index.encoder import Encoder
from hmde.index.index import Index
from hmde.index.update import update_index
from tests.hmde.small_index import CountingEncoder

pytestmark = pytest.mark.lancedb


def read(source: Path, language: str | None = None, strict: bool = False) -> list[Document]:
    return list(Documents(source, language, strict=strict))


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
        Document("b.parquet#x", "X", "en", "X\nthree"),
        Document("read.md", "Title", "en", "Title"),
        Document("sub/note.TXT", "note", "en", "Eine Notiz."),
    ]
    assert read(tmp_path / "read.md") == [Document("read.md", "Title", None, "Title")]


def test_a_source_may_be_named_by_a_string(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    assert list(Documents(str(tmp_path))) == read(tmp_path)
    with pytest.raises(ValueError, match=f"{tmp_path}/nothing is missing; give a folder of"):
        Documents(f"{tmp_path}/nothing")


def test_named_columns_are_read_and_must_be_in_every_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"body": "one", "code": "fr", "number": 7}, {"body": None, "code": None, "number": 8}]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = Columns(text="body", language="code", id="number")
    assert list(Documents(tmp_path, columns=columns)) == [Document("7", "7", "fr", "one")]
    assert f"{file}, line 2: the text is null; it is skipped" in caplog.text
    pyarrow.parquet.write_table(pyarrow.table({"body": ["two"], "number": [9]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet, row 1: there is no 'code'; every row must have one"):
        list(Documents(tmp_path, columns=columns))


def test_the_title_of_a_row_is_searched_as_the_first_line_of_its_text(tmp_path: Path, encoder: Encoder) -> None:
    titles = ["The Danube", "The Nile", "", None]
    texts = ["It flows to the east.", "The Nile flows north.", "No river.", "No river."]
    rows = pyarrow.table({"id": ["a", "b", "c", "d"], "title": titles, "text": texts})
    pyarrow.parquet.write_table(rows, tmp_path / "rivers.parquet")
    documents = read(tmp_path)
    assert [document.text for document in documents] == ["The Danube\nIt flows to the east.", *texts[1:]]
    (tmp_path / "books.jsonl").write_text('{"title": "Rom", "text": "Romane und ihre Orte."}')
    assert [document.text for document in read(tmp_path / "books.jsonl")] == ["Rom\nRomane und ihre Orte."]
    update_index(tmp_path / "index", documents, encoder)
    (hit, *others) = Index(tmp_path / "index", encoder).search("Danube", ranking="bm25")
    assert (hit.document.title, others) == ("The Danube", [])


def test_a_table_without_any_column_that_is_wanted_is_no_table_without_rows(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"body": ["one", "two"]}), tmp_path / "p.parquet")
    with pytest.raises(ValueError, match=r"p\.parquet, row 1: there is no 'text'; every row must have one"):
        read(tmp_path)


def test_a_named_column_holds_the_language_and_any_other_is_left_alone(tmp_path: Path) -> None:
    rows = [{"text": "a", "code": "de", "language": 7}, {"text": "b", "code": 7, "language": "fr"}]
    (tmp_path / "a.jsonl").write_text(json.dumps(rows[0]))
    columns = Columns(language="code")
    (document,) = Documents(tmp_path / "a.jsonl", columns=columns)
    assert document.language == "de"
    (tmp_path / "a.jsonl").write_text(json.dumps(rows[1]))
    with pytest.raises(ValueError, match="code is 7; it must be a string"):
        list(Documents(tmp_path / "a.jsonl", columns=columns))


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


def test_a_lone_surrogate_in_metadata_is_replaced() -> None:
    assert Document("a", "", None, "The cat.", {"by": "x\ud800", "year": 2000}).metadata == {
        "by": "x\ufffd",
        "year": 2000,
    }


def test_a_lone_surrogate_anywhere_does_not_stop_an_index(tmp_path: Path, encoder: Encoder) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / os.fsdecode(b"caf\xe9.txt")).write_text("The cat.")
    with (source / os.fsdecode(b"th\xe9.parquet")).open("wb") as file:  # pyarrow writes to no such name
        pyarrow.parquet.write_table(pyarrow.table({"text": ["Le chat dort."]}), file)
    row = {"id": "\ud800", "title": "\udfff", "language": "\ud9ff", "text": "The cat \ud800 sat. \ud83d\ude00"}
    (source / "a.jsonl").write_text(json.dumps(row))
    update_index(tmp_path / "index", Documents(source), encoder, sentences=True)
    hits = Index(tmp_path / "index", encoder).search("The cat", ranking="late")
    assert {hit.document for hit in hits} == {
        Document("a.jsonl#\ufffd", "\ufffd", "\ufffd", "\ufffd\nThe cat \ufffd sat. \U0001f600"),
        Document("caf\\xe9.txt", "caf\\xe9", None, "The cat."),
        Document("th\\xe9.parquet#1", "1", None, "Le chat dort."),
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"\x89PNG\0\0\0\r", r"a\.txt is no text"),
        ("a.txt", b" \n", r"a\.txt holds no text; write some, or remove the file"),
        ("a.jsonl", b'{"text": "one"}\n{"text": "\xff"}', r"a\.jsonl, line 2: is not UTF-8 \(byte 10 of it is 0xff\)"),
        ("a.jsonl", b'{"text": "one"}\n{', r"a\.jsonl, line 2: is no JSON"),
        ("a.jsonl", b"[" * 100_000, r"a\.jsonl, line 1: is no JSON"),
        ("a.jsonl", b"[1]", r"a\.jsonl, line 1: is no object"),
        ("a.jsonl", b'{"title": "one"}', r"a\.jsonl, line 1: there is no 'text'"),
        ("a.jsonl", b'{"text": 1}', r"a\.jsonl, line 1: text is 1"),
        ("a.jsonl", b'{"text": "one", "id": [1]}', r"a\.jsonl, line 1: the id is \[1\]"),
        ("a.jsonl", b'{"text": "one", "id": true}', r"a\.jsonl, line 1: the id is True"),
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
        update_index(tmp_path / "index", Documents(tmp_path / "source", strict=True), counting)
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
                read(tmp_path / name, strict=True)
