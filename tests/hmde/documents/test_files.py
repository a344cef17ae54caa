"""Files of all kinds become documents, with the place that a hit names; what cannot be read is left out, and said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hmde.__main__ import main
from hmde.documents.documents import DETECT, Document, Documents
from hmde.index.encoder import Encoder
from hmde.index.index import Index
from hmde.index.update import update_index
from tests.hmde.documents.office_files import write_docx, write_epub, write_pdf, write_pptx, write_zip

for package in ("charset_normalizer", "kreuzberg", "lxml", "markdown_it", "pypdfium2", "resiliparse", "webencodings"):
    pytest.importorskip(package, reason="pip install '.[files]'")
pytestmark = pytest.mark.lancedb


def read(source: Path) -> list[Document]:
    return list(Documents(source))


def test_a_pdf_is_read_page_by_page_and_a_page_without_text_is_no_document(tmp_path: Path) -> None:
    pages = [["The Moon circles the Earth and shows us one", "side."], [], ["The Sun is a star."]]
    write_pdf(tmp_path / "sky.pdf", pages, title="The sky")
    assert read(tmp_path) == [
        Document("sky.pdf#page=1", "The sky, page 1", None, "The Moon circles the Earth and shows us one side."),
        Document("sky.pdf#page=3", "The sky, page 3", None, "The Sun is a star."),
    ]


def test_a_hit_names_file_and_page(tmp_path: Path, encoder: Encoder) -> None:
    write_pdf(tmp_path / "sky.pdf", [["The Moon circles the Earth."], ["Der Hund sah die Katze."]])
    update_index(tmp_path / "index", Documents(tmp_path / "sky.pdf"), encoder)
    (hit, *_) = Index(tmp_path / "index", encoder).search("Hund", ranking="bm25")
    assert (hit.document.title, hit.document.id) == ("sky, page 2", "sky.pdf#page=2")


def test_of_an_html_page_its_main_text_is_read_a_line_a_paragraph(tmp_path: Path) -> None:
    body = "<nav>Home</nav><h1>Mond</h1><p>Der <a href='x'>runde</a>\n Mond<!-- no --> scheint.<p>H<sub>2</sub>O</p>"
    page = f"<html lang='de-AT'><head><title> Der Mond </title><script>no()</script></head><body>{body}</body></html>"
    (tmp_path / "a.html").write_text(page, encoding="utf-8")
    (tmp_path / "b.htm").write_text(f"<body>Menu<main>{body}</main>Imprint</body>")
    (tmp_path / "c.html").write_bytes("<meta charset='windows-1251'><p>Луна".encode("windows-1251"))
    (tmp_path / "d.HTML").write_text("<p>Луна", encoding="utf-8")
    (tmp_path / "e.html").write_text("<p> Der Mond <p>\n scheint. </p>", encoding="utf-8")
    text = "Mond\nDer runde Mond scheint.\nH2O"
    assert read(tmp_path) == [
        Document("a.html", "Der Mond", "de", text),
        Document("b.htm", "Mond", None, text),
        Document("c.html", "c", None, "Луна"),
        Document("d.HTML", "d", None, "Луна"),
        Document("e.html", "e", None, "Der Mond\nscheint."),
    ]


def test_office_files_and_books_are_read_with_tables_slides_and_chapters(tmp_path: Path) -> None:
    write_docx(tmp_path / "a.docx", ["The Moon.", "It is round."], cell="A cell.")
    write_pptx(tmp_path / "b.pptx", ["One", "Two"], title="Numbers")
    write_epub(tmp_path / "c.epub", {"second.xhtml": "Zuerst", "first.xhtml": "Dann"}, title="Buch", language="de-DE")
    assert read(tmp_path) == [
        Document("a.docx", "a", None, "The Moon.\nIt is round.\nA cell."),
        Document("b.pptx#slide=1", "Numbers, slide 1", None, "One\nBar of One\nSay One."),
        Document("b.pptx#slide=2", "Numbers, slide 2", None, "Two\nBar of Two\nSay Two."),
        Document("c.epub#chapter=1", "Buch, chapter 1", "de", "Zuerst"),
        Document("c.epub#chapter=2", "Buch, chapter 2", "de", "Dann"),
    ]


def test_the_text_of_a_box_is_read_once_behind_its_paragraph(tmp_path: Path) -> None:
    write_docx(tmp_path / "a.docx", ["Before."], cell="A cell.", box="Inside the box.")
    assert [document.text for document in read(tmp_path)] == ["Before.\nInside the box.\nA cell."]


def test_a_page_that_is_one_form_is_read_but_not_its_lists_of_choices(tmp_path: Path) -> None:
    body = "<form><select><option>One</option></select><button>Go</button><p>Der Mond scheint.</p></form>"
    page = f"<html xmlns='http://www.w3.org/1999/xhtml' xml:lang='de'><body>{body}</body></html>"
    (tmp_path / "a.xhtml").write_text(page, encoding="utf-8")
    assert read(tmp_path) == [Document("a.xhtml", "a", "de", "Der Mond scheint.")]


def test_a_chapter_that_is_listed_but_not_there_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chapters = {"first.xhtml": "Zuerst", "lost.xhtml": "?", "second.xhtml": "Dann"}
    write_epub(tmp_path / "a.epub", chapters, title="Buch", language="de", lost="lost.xhtml")
    assert [(found.id, found.text) for found in read(tmp_path)] == [
        ("a.epub#chapter=1", "Zuerst"),
        ("a.epub#chapter=3", "Dann"),
    ]
    assert "a.epub lacks chapters that it lists: OPS/lost.xhtml" in caplog.text


ENCRYPTED = "/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O (01234567890123456789012345678901) /U (0123456789012345678901234567890x) >>"  # noqa: E501


def write_unreadable(folder: Path) -> dict[str, str]:
    """Files that cannot be read, and what is said of each."""
    write_pdf(folder / "locked.pdf", [["Secret."]], trailer=f"{ENCRYPTED} /ID [(a) (a)]")
    write_pdf(folder / "scanned.pdf", [[]])
    (folder / "cut.pdf").write_bytes(b"%PDF-1.4\n1 0 obj")
    (folder / "locked.docx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
    (folder / "cut.docx").write_bytes(b"PK\x03\x04")
    write_zip(folder / "other.pptx", {"a.txt": "no slides"})
    (folder / "empty.html").write_bytes(b"")
    write_epub(folder / "locked.epub", {"a.xhtml": "?"}, title="", language="", encrypted="a.xhtml")
    (folder / "binary.txt").write_bytes(b"\0\5\x16\7\0\2\0\0Mac OS X")
    (folder / "empty.txt").touch()
    (folder / "white.MD").write_text("\ufeff \n\n", encoding="utf-8")
    return {
        "locked.pdf": "is encrypted; save it without its password",
        "scanned.pdf": "holds no text; if it is scanned, recognise its text first",
        "cut.pdf": "is damaged",
        "locked.docx": "is encrypted, or of Office 97; save it without a password",
        "cut.docx": "is damaged",
        "other.pptx": "is damaged",
        "empty.html": "holds no text",
        "locked.epub": "is encrypted; bring one without DRM",
        "binary.txt": "is no text",
        "empty.txt": "holds no text; write some, or remove the file",
        "white.MD": "holds no text; write some, or remove the file",
    }


def test_what_cannot_be_read_is_named_and_counted_and_the_rest_is_indexed(
    tmp_path: Path, model_folder: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "documents"
    source.mkdir()
    expected = write_unreadable(source)
    (source / "moon.md").write_text("The Moon.")
    for name in (".git", "node_modules"):
        (source / name).mkdir()
        (source / name / "readme.txt").write_text("Of a program.")
    for name in ("all.zip", "README"):
        (source / name).touch()
    command = ["index", str(source), str(tmp_path / "index"), "--model", str(model_folder), "--dtype", "float32"]
    main(command)
    assert capsys.readouterr().out == (
        "1 added, 0 changed, 0 removed, 0 unchanged\n"
        "files left out: 15 (5 no text, 3 damaged, 3 encrypted, 2 hidden, or of a program, "
        "1 of a kind that is not read: .zip, 1 of a kind that is not read: without an ending)\n"
    )
    warnings = [record.getMessage() for record in caplog.records if "is left out" in record.getMessage()]
    assert len(warnings) == len(expected)
    for name, reason in expected.items():
        assert any(f"{name} {reason}" in warning for warning in warnings), (name, warnings)
    with pytest.raises(ValueError, match=r"binary\.txt is no text"):
        main([*command, "--strict", "true"])


def test_a_library_that_is_missing_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pdf(tmp_path / "sky.pdf", [["The Moon."]])
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(ValueError, match=r'sky\.pdf cannot be read: pypdfium2 is not .*; pip install "hmde\[files\]"'):
        list(Documents(tmp_path, strict=True))


def test_the_language_of_a_text_is_found_out_if_it_is_asked_for_and_not_known(tmp_path: Path) -> None:
    pytest.importorskip("py3langid", reason="pip install '.[files]'")
    (tmp_path / "a.txt").write_text("Der Hund sah die Katze, und sie schlief in der Sonne.")
    (tmp_path / "b.jsonl").write_text(
        '{"text": "The cat sat on the mat.", "language": "xx"}\n{"text": "Le chat dort."}'
    )
    assert [document.language for document in Documents(tmp_path, DETECT)] == ["de", "xx", "fr"]
