"""What a reader of a file sees is its text, and nothing else is; what is guessed or lost is said."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hmde.documents.documents import Document, Documents, language_code
from hmde.documents.files import LONGEST, UnreadableFile, read_file
from hmde.documents.wrapping import unwrapped
from tests.hmde.documents.office_files import write_epub, write_pdf, write_zip

for package in ("charset_normalizer", "kreuzberg", "lxml", "markdown_it", "pypdfium2", "resiliparse", "webencodings"):
    pytest.importorskip(package, reason="pip install '.[files]'")

FILES = Path(__file__).parent / "files"  # the PDFs were printed by Chromium, the rest of them written by LibreOffice


def text_of(folder: Path, name: str, content: str | bytes) -> str:
    """The text of a file with one section."""
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    ((_, text),) = read_file(file).sections
    return text


MOON = "Луна обращается вокруг Земли и показывает нам только одну сторону."
SUBTITLES = "1\n00:00:01,000 --> 00:00:02,000\nHello <i>my</i>\n\n2\n00:00:03,000 --> 00:00:04,000\nfriend."


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.html", "<p>a<p hidden>XX", "a"),
        ("a.html", '<p>a<p style="display:none">XX', "a"),
        ("a.html", "<p>a<p style='DISPLAY: none'>XX", "a"),
        ("a.html", "<body style='display:none'><p>a program shows it", "a program shows it"),
        ("a.html", "<main></main><p>seen", "seen"),
        ("a.html", "<div role=main><p>main</div><p>beside", "main"),
        ("a.html", "<article><p>only one</article><p>beside", "only one"),
        ("a.html", "<article>one</article><article>two</article>", "one\ntwo"),
        ("a.html", "<nav><p>all there is</nav>", "all there is"),
        ("a.html", "<ul>" + "<li><a>link</a>" * 3 + "</ul><p>A text that is longer.", "A text that is longer."),
        ("a.html", "<p>A text.<p>More of it.<div class='Comment-list'>Nice!</div>", "A text.\nMore of it."),
        ("a.html", "<p>A text.<div class=comments>" + "<p>All of a thread." * 3, "A text." + "\nAll of a thread." * 3),
        ("a.html", "<p>A text of a page.<div class='body extra'>seen", "A text of a page.\nseen"),
        ("a.html", "<p>Do&shy;nau&shy;dampf", "Donaudampf"),
        ("a.html", "<pre>one\n  two</pre>", "one\n  two"),
        ("a.html", "<main><p>a<aside>Warning: hot</aside></main>", "a\nWarning: hot"),
        ("a.html", "<table><tr><td>Ann<td>30<tr><td>Bob<td>41</table>", "Ann 30\nBob 41"),
        ("a.html", "<p>a<video>no support</video>", "a"),
        ("a.html", "<p>x" + "<b>" * 2_000 + "<p>middle</p>" + "</b>" * 2_000 + "<p>end.", "x\nmiddle\nend."),
        ("a.html", "<meta charset=gb2312><p>月\u9e98end".encode("gb18030"), "月\u9e98end"),
        ("a.html", b"<meta charset=windows-1253><p>\xc1\xd2end", "Α\ufffdend"),
        ("a.html", b"<meta charset=iso-8859-1><p>\x93Quoted\x94", "“Quoted”"),
        ("a.html", b"<meta charset=x-sjis><p>" + "月です".encode("shift_jis"), "月です"),
        ("a.xhtml", b'<?xml version="1.0" encoding="windows-1251"?><p>' + MOON.encode("cp1251"), MOON),
        ("a.html", b"<p>" + MOON.encode("koi8-r"), MOON),
        ("a.txt", MOON.encode("utf-16-be"), MOON),
        ("a.txt", MOON.encode("utf-16"), MOON),
        ("a.txt", "café".encode("latin-1") + b" and so on", "café and so on"),
        ("a.md", "---\ntitle: T\n---\n# H\ntext\nwrapped [link](http://x)\n<!-- c -->\n", "H\ntext wrapped link"),
        ("a.md", "```\ndef f():\n    pass\n```\n\n| a | b |\n|---|---|\n| c | d |", "def f():\n    pass\na b\nc d"),
        ("a.md", "A <script> tag, and more.", "A <script> tag, and more."),
        ("a.md", "---\na: [\n---\ntext", "a: [\ntext"),
        ("a.srt", SUBTITLES, "Hello my friend."),
        ("a.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nHi.\n\nNOTE no\n\n00:01.000 --> 00:02.000\nYes.", "Hi.\nYes."),
        ("a.csv", 'name;note\nAnn;"two\nlines"\nBob;', "name, note\nAnn, two lines\nBob"),
        ("a.tsv", "name\tage\nAnn\t30", "name, age\nAnn, 30"),
        ("a.xml", "<r><t>One <b>two</b><!-- no --></t>\n<t>three</t></r>", "One two\nthree"),
        ("a.eml", b"Subject: =?utf-8?q?=C3=9C?=\nContent-Type: text/html; charset=latin1\n\n<p>F\xfcr", "Ü\nFür"),
        ("a.eml", "Subject: S\n\nFirst.\n\nSecond.\n", "S\nFirst.\n\nSecond.\n"),
        ("a.json", '{"title": "Der Mond", "items": ["x", "y z"]}', "title: Der Mond\nitems\nx\ny z"),
    ],
)  # fmt: skip
def test_the_text_is_what_a_reader_sees(tmp_path: Path, name: str, content: str | bytes, text: str) -> None:
    assert text_of(tmp_path, name, content) == text


NOTES = "The footnote names the source.\nThe endnote is last."
OFFICE = "Mond und Erde\nDer Mond umkreist die Erde.\neins\nAnn 30\nБоб 41\n月亮 القمر"


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("moon.odt", [OFFICE]),
        ("moon.rtf", [OFFICE]),
        ("moon.doc", [OFFICE]),
        ("notes.doc", ["A claim goes on.\nSeen hidden words here.\nAn end.\n" + NOTES]),
        ("notes.odt", ["A claim goes on.\nThe footnote names the source.\nSeen here.\nAn end.\nThe endnote is last."]),
        ("notes.rtf", ["A claim\nThe footnote names the source. goes on.\nSeen here.\nAn end\nThe endnote is last.."]),
        ("cells.xlsx", ["t\nname age\nAnn 30\nБоб 41"]),
        ("cells.ods", ["t\nname age\nAnn 30\nБоб 41"]),
        ("slides.odp", ["Eins Луна\nInhalt Eins Луна\nNotiz Eins Луна", "Zwei\nInhalt Zwei\nNotiz Zwei"]),
        ("notes.docx", ["A claim.\nThis sentence was moved.\nco-op\nThe footnote names the source."]),
        ("strict.docx", ["A document saved as Strict Open XML.\nThe footnote names the source."]),
        ("book.epub", ["A claim.1\nThe footnote names the source."]),
        ("missing.epub", ["A claim.1\nThe footnote names the source."]),
    ],
)
def test_office_files_and_books_of_all_kinds_are_read(name: str, texts: list[str]) -> None:
    found = [text.strip().replace("\n\n", "\n") for _, text in read_file(FILES / name).sections]
    assert found == texts


def test_what_is_hidden_or_a_placeholder_in_a_docx_is_no_text(tmp_path: Path) -> None:
    from tests.hmde.documents.office_files import write_docx

    hidden = "</w:t></w:r><w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden"
    empty = "</w:t></w:r><w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:r><w:t>Click here</w:t></w:r></w:sdt><w:r><w:t>"
    write_docx(tmp_path / "a.docx", [f"seen{hidden}", f"{empty}too"], cell="cell")
    assert read_file(tmp_path / "a.docx").sections == [("", "seen\ntoo\ncell")]


without_poppler = pytest.mark.skipif(not shutil.which("pdftotext"), reason="apt install poppler-utils")


@pytest.mark.parametrize("poppler", [pytest.param(True, marks=without_poppler), False])
@pytest.mark.parametrize(
    ("name", "parts", "garbled"),
    [
        ("form.pdf", ["A typed note", "Filled in by hand"], False),
        ("chrome_one_line.pdf", ["yaşam biçimimizi"], True),
        ("chrome_ar.pdf", ["تتحدث عن الطعام والماء"], True),
        ("chrome_hi.pdf", ["यह वाक्य खाने और पानी के बारे में है"], True),
    ],
)
def test_a_pdf_is_read_by_poppler_and_what_pdfium_garbles_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, parts: list[str], garbled: bool, poppler: bool
) -> None:
    if not poppler:
        monkeypatch.setattr(shutil, "which", lambda _: None)
    content = read_file(FILES / name)
    text = "\n".join(text for _, text in content.sections)
    if poppler or not garbled:
        assert all(part in text for part in parts), text
        assert content.notes == ()
    else:
        (note,) = content.notes
        assert "may be read with words reversed, split or letter by letter; install poppler (apt install" in note


@without_poppler
def test_what_two_readers_of_a_pdf_read_differently_is_named() -> None:
    (note,) = read_file(FILES / "weasyprint_hi.pdf").notes
    assert note == "may be read with wrong words, since poppler and PDFium differ; index what it was printed from"


def poppler_that(folder: Path, does: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a `pdftotext` that does this into the way of poppler's."""
    (folder / "pdftotext").write_text(f"#!/bin/sh\ncat > /dev/null\n{does}\n")
    (folder / "pdftotext").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


@pytest.mark.parametrize(
    ("does", "text"),
    [
        (r"printf 'by poppler\f'", "by poppler"),
        ("exit 1", "by PDFium"),
        (r"printf 'two pages\fof a file of one\f'", "by PDFium"),
        (r"printf ' \f'", "by PDFium"),
    ],
)
def test_poppler_is_believed_where_it_reads_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, text: str
) -> None:
    write_pdf(tmp_path / "a.pdf", [["by PDFium"]])
    poppler_that(tmp_path, does, monkeypatch)
    content = read_file(tmp_path / "a.pdf")
    assert content.sections == [("page 1", text)]
    assert content.notes == ()


def test_doubts_about_what_poppler_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pdf(tmp_path / "a.pdf", [["other letters"]])
    poppler_that(tmp_path, "printf '\u062d\u0648\u0644 \u0627\u0623\u0644\u0631\u0636\\f'", monkeypatch)
    differ, order = read_file(tmp_path / "a.pdf").notes
    assert differ.startswith("may be read with wrong words, since poppler and PDFium differ")
    assert order.startswith("has words with lam and alef in the wrong order")


def test_what_poppler_writes_in_the_wrong_order_is_put_right_where_it_can_be_known() -> None:
    from hmde.documents.pdf import _cleaned

    assert _cleaned(
        "\u202b\u062d\u0648\u0644 \u0627\u0623\u0644\u0631\u0636\u202a .\u202c\u0627\u0644 \u0634\u064a\u0621\u202c"
    ) == ("\u062d\u0648\u0644 \u0627\u0644\u0623\u0631\u0636. \u0644\u0627 \u0634\u064a\u0621")
    assert (
        _cleaned("\u202b\u202a.\u202c\u05d0\u05d5\u05ea\u05d5 \u05e6\u05d3\u202c")
        == "\u05d0\u05d5\u05ea\u05d5 \u05e6\u05d3."
    )
    assert _cleaned("\u099a\u09be \u0981\u09a6") == "\u099a\u09be\u0981\u09a6"


def test_headers_and_footers_of_a_pdf_are_read_on_no_page(tmp_path: Path) -> None:
    pages = [["The report of 2024", f"{word} is its text.", f"Page {number}"] for number, word in enumerate(("It", "He", "We"))]  # fmt: skip  # noqa: E501
    write_pdf(tmp_path / "a.pdf", pages)
    assert [text for _, text in read_file(tmp_path / "a.pdf").sections] == [page[1] for page in pages]


POEM = "Tiger, tiger, burning bright\nIn the forests of the night,\nWhat immortal hand or eye\nCould frame it?"
LIST = "- The first item of a list that is long enough to be wrapped\n- The second\n- The third"


def test_wrapped_lines_are_put_together_and_verse_lists_code_and_tables_stay() -> None:
    import textwrap

    prose = "The Moon circles the Earth and shows us one side, as everybody knows who has ever looked at it. " * 4
    wrapped = textwrap.fill(prose.strip(), 60)
    table = "Ann     30     Berlin                     Germany\nBob     41     Paris                      France"
    code = "    if x:\n        return the_value_of_the_function_that_was_called(x)"
    for kept in (POEM, LIST, table, code):
        assert unwrapped(f"{wrapped}\n\n{kept}\n\n{wrapped}").split("\n\n", 1)[1].startswith(kept)
    assert unwrapped(wrapped) == prose.strip()
    assert unwrapped(POEM) == POEM
    chinese = "月亮围绕地球旋转我们只能看到它的一面这是大家都知道的" * 4
    assert unwrapped("\n".join(textwrap.wrap(chinese, 20))) == chinese


def test_what_is_guessed_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.txt").write_bytes(MOON.encode("cp1251"))
    documents = Documents(tmp_path)
    assert [list(documents), list(documents)] == [[Document("a.txt", "a", None, MOON)]] * 2
    assert documents.notes == {"a.txt": "names no encoding; it is read as cp1251, which is a guess"}
    assert caplog.text.count("which is a guess") == 1


def test_of_a_mail_the_files_that_came_with_it_are_named(tmp_path: Path) -> None:
    lines = ["Subject: S", "Content-Type: multipart/mixed; boundary=B", "", "--B", "", "Hello.", "--B"]
    attached = ["Content-Type: application/zip", "Content-Disposition: attachment; filename=a.zip", "", "x", "--B--"]
    (tmp_path / "a.eml").write_text("\n".join(lines + attached))
    content = read_file(tmp_path / "a.eml")
    assert (content.title, content.sections) == ("S", [("", "S\nHello.")])
    assert content.notes == ("came with files that are not read: a.zip; save them beside it",)


def test_front_matter_names_title_and_language_and_else_the_first_heading_is_the_title(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("---\ntitle: Der Mond\nlang: de-AT\n---\n# Rund\nEr scheint.")
    (tmp_path / "b.md").write_text("Hello.\n\n## The *Moon*\nIt shines.")
    assert list(Documents(tmp_path)) == [
        Document("a.md", "Der Mond", "de", "Rund\nEr scheint."),
        Document("b.md", "The Moon", None, "Hello.\nThe Moon\nIt shines."),
    ]


def test_a_long_document_is_read_in_parts_at_its_headings(tmp_path: Path) -> None:
    chapter = "It was a long day.\n\n" * (LONGEST // 40)
    (tmp_path / "a.md").write_text("".join(f"# Chapter {number}\n{chapter}" for number in range(5)))
    (tmp_path / "b.txt").write_text("word " * LONGEST)
    documents = {document.id: document for document in Documents(tmp_path)}
    assert list(documents)[:5] == [f"a.md#part={number}" for number in range(1, 6)]
    assert [documents[id].text.split("\n")[0] for id in list(documents)[:5]] == [f"Chapter {n}" for n in range(5)]
    assert documents["a.md#part=2"].title == "Chapter 0, part 2"
    words = [document.text for id, document in documents.items() if id.startswith("b.txt")]
    assert " ".join(words).split() == ["word"] * LONGEST
    assert max(map(len, words)) <= LONGEST


WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE_TYPE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def write_with_headings(folder: Path) -> None:
    """One text, in which "Eins" and "Zwei" are headings, in files of all kinds."""
    (folder / "a.md").write_text("# Eins\nEin Satz.\n## Zwei\nNoch einer.")
    (folder / "b.txt").write_text("\n\n\nEins\n\nEin Satz.\n\n\nZwei\n\nNoch einer.")
    (folder / "c.html").write_text("<h1>Eins</h1>Ein Satz.<h2>Zwei</h2>Noch einer.")
    relations = '<Relationships><Relationship Id="r" Type="{}/{}" Target="{}"/></Relationships>'
    style = '<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
    texts = [("Eins", "berschrift1"), ("Ein Satz.", "x"), ("Zwei", "berschrift1"), ("Noch einer.", "x")]
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{id}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>' for text, id in texts
    )
    files = {
        "_rels/.rels": relations.format(OFFICE_TYPE, "officeDocument", "word/document.xml"),
        "word/_rels/document.xml.rels": relations.format(OFFICE_TYPE, "styles", "styles.xml"),
        "word/styles.xml": f'<w:styles xmlns:w="{WORD}">{style}</w:styles>',
        "word/document.xml": f'<w:document xmlns:w="{WORD}">{body}</w:document>',
    }
    write_zip(folder / "d.docx", files)
    odf = 'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    body = "<text:h>Eins</text:h><text:p>Ein Satz.</text:p><text:h>Zwei</text:h><text:p>Noch einer.</text:p>"
    write_zip(folder / "e.odt", {"META-INF/manifest.xml": "<m/>", "content.xml": f"<c {odf}>{body}</c>"})


def test_headings_of_a_text_are_known_in_all_kinds_of_files(tmp_path: Path) -> None:
    write_with_headings(tmp_path)
    for document in Documents(tmp_path):
        named = [(heading, document.text[begin:].startswith(heading)) for begin, heading in document.headings]
        assert named == [("Eins", True), ("Zwei", True)], document


def test_a_page_or_chapter_without_a_heading_goes_on_under_the_one_before(tmp_path: Path) -> None:
    write_pdf(tmp_path / "a.pdf", [["The begin", "A text of two pages."], ["It goes on."]], bookmark="The begin")
    write_epub(tmp_path / "b.epub", {"a.html": "One", "b.html": "Two"}, "Book", "en")
    headings = {document.id: document.headings for document in Documents(tmp_path)}
    assert headings == {
        "a.pdf#page=1": ((0, "The begin"),),
        "a.pdf#page=2": ((0, "The begin"),),
        "b.epub#chapter=1": ((0, "One"),),
        "b.epub#chapter=2": ((0, "Two"),),
    }


def test_codes_of_one_language_are_one(tmp_path: Path) -> None:
    lines = [f'{{"text": "Hallo", "language": "{code}"}}' for code in ("DE", "de-DE", "deu")]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    assert {document.language for document in Documents(tmp_path)} == {"de"}
    assert language_code("iw") == "he"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["moon.odt", "moon.doc", "notes.docx", "book.epub", "form.pdf", "cells.xlsx"])
def test_a_file_that_is_cut_off_is_refused_or_read(tmp_path: Path, name: str) -> None:
    content = (FILES / name).read_bytes()
    for part in range(1, 8):
        (tmp_path / name).write_bytes(content[: len(content) * part // 8])
        try:
            read_file(tmp_path / name)
        except UnreadableFile as error:
            assert str(error).startswith(str(tmp_path / name))  # noqa: PT017


def test_what_is_named_doc_may_be_of_another_kind_and_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name in ("notes.docx", "moon.rtf"):
        shutil.copy(FILES / name, tmp_path / "a.doc")
        assert read_file(tmp_path / "a.doc").sections == read_file(FILES / name).sections
    assert text_of(tmp_path, "a.doc", "<p>a page") == "a page"
    content = (FILES / "notes.doc").read_bytes()
    begin = content.index(b"\xec\xa5")  # of the header of the text
    for place, value, message in ((begin + 11, 0x13, "is encrypted"), (begin + 3, 0, "is of Word 95")):
        changed = content[:place] + bytes([value]) + content[place + 1 :]
        (tmp_path / "b.doc").write_bytes(changed)
        with pytest.raises(UnreadableFile, match=rf"b\.doc {message}"):
            read_file(tmp_path / "b.doc")


def test_a_panic_of_a_library_is_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panic = type("PanicException", (BaseException,), {})

    def fail(*_: object) -> None:
        raise panic("out of range")

    monkeypatch.setattr("kreuzberg.extract_bytes_sync", fail)
    with pytest.raises(UnreadableFile, match=r"cells\.xlsx is damaged \(out of range\)"):
        read_file(FILES / "cells.xlsx")
    monkeypatch.undo()
    laughs = "".join(f"<!ENTITY a{n + 1} '{f'&a{n};' * 20}'>" for n in range(9))
    (tmp_path / "a.xml").write_text(f"<!DOCTYPE r [<!ENTITY a0 'ha'>{laughs}]><r>&a9;</r>")
    with pytest.raises(UnreadableFile, match=r"a\.xml is damaged"):
        read_file(tmp_path / "a.xml")


def test_an_encrypted_open_document_is_named(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.odt", {"META-INF/manifest.xml": "<m><encryption-data/></m>"})
    with pytest.raises(UnreadableFile, match=r"a\.odt is encrypted; save it without its password"):
        read_file(tmp_path / "a.odt")
