"""Evaluation data files: what is read, and what is refused with file, line, rule and way out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.datasets.labelled_sets import read_labelled_texts
from evaluation.datasets.languages import check_language, languages_of
from evaluation.datasets.retrieval_sets import (
    DocumentFile,
    late_sentences,
    read_qrels,
    read_queries,
    read_retrieval_set,
)
from tests.paths import written


def read_documents(path: Path) -> dict[str, str]:
    return dict(DocumentFile(path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A set in which `de` lacks document d2, and query q4 is judged in the dev split only."""
    written(tmp_path / "docs" / "en.jsonl", '{"doc_id": "d1", "text": "one"}\n{"doc_id": "d2", "text": "two"}\n')
    written(tmp_path / "docs" / "de.jsonl", '{"doc_id": "d1", "text": "eins"}\n{"doc_id": "d3", "text": "drei"}\n')
    written(tmp_path / "queries" / "en.tsv", "q1\tfirst\nq2\tsecond\nq3\tthird\nq4\tfourth\n")
    written(tmp_path / "qrels.test.tsv", "q1\t0\td1\t2\nq1\t0\td2\t1\nq2\t0\td2\t1\nq3\t0\td3\t1\nq3\t0\td1\t0\n")
    written(tmp_path / "qrels.dev.tsv", "q4\t0\td1\t1\n")
    return tmp_path


def test_only_the_files_and_queries_that_pairs_and_split_need_are_read(folder: Path) -> None:
    written(folder / "docs" / "fr.jsonl", "no JSON")
    found = read_retrieval_set(folder, ["en-de", "en-en"], split="test")
    assert found.documents == {"de": {"d1": "eins", "d3": "drei"}, "en": {"d1": "one", "d2": "two"}}
    assert found.queries == {"en": {"q1": "first", "q2": "second", "q3": "third"}}
    assert read_retrieval_set(folder, ["en-de"], split="dev").queries == {"en": {"q4": "fourth"}}


def test_judgements_leave_out_what_a_collection_lacks(folder: Path) -> None:
    found = read_retrieval_set(folder, ["en-de", "en-en"], split="test")
    assert found.judgements("en-de") == {"q1": {"d1": 2}, "q3": {"d3": 1, "d1": 0}}
    assert found.judgements("en-en") == {"q1": {"d1": 2, "d2": 1}, "q2": {"d2": 1}}  # q3: grade 0 is not relevant


def test_a_set_without_splits_has_one_file_of_qrels(folder: Path) -> None:
    (folder / "qrels.dev.tsv").rename(folder / "qrels.tsv")
    assert read_retrieval_set(folder, ["en-de"]).qrels == {"q4": {"d1": 1}}


def test_an_article_table_is_a_collection_and_titles_are_not_read(tmp_path: Path) -> None:
    line = '{"concept_id": "c1", "language": "en", "title": "A title", "text": "A text.", "split": "test"}\n'
    assert read_documents(written(tmp_path / "en.jsonl", line)) == {"c1": "A text."}


def test_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    documents = b'{"doc_id": "d", "text": "t"}\r\n{"doc_id": "e", "text": "u"}\r\n'
    assert read_documents(written(tmp_path / "a", mark + documents)) == {"d": "t", "e": "u"}
    assert read_queries(written(tmp_path / "b", mark + b"q\tt\r\nr\tu\r\n")) == {"q": "t", "r": "u"}
    assert read_qrels(written(tmp_path / "c", mark + b"q\t0\td\t1\r\n")) == {"q": {"d": 1}}
    assert read_labelled_texts(written(tmp_path / "d", mark + b"l\tt\r\nm\tu\r\n")) == (["l", "m"], ["t", "u"])


def test_only_a_line_feed_ends_a_line_and_only_the_first_tab_a_field(tmp_path: Path) -> None:
    path = written(tmp_path / "en.tsv", "a\tone\u2028two\x85three\rfour\tfive\nb\t\n")
    assert read_labelled_texts(path) == (["a", "b"], ["one\u2028two\x85three\rfour\tfive", ""])


def test_qrels_with_blanks_for_tabs_are_read_as_trec_eval_reads_them(tmp_path: Path) -> None:
    assert read_qrels(written(tmp_path / "qrels", "141 0 FSA-1 1\n141  Q0 FSA-2 -1\n")) == {
        "141": {"FSA-1": 1, "FSA-2": -1}
    }


GOOD = {
    read_documents: '{"doc_id": "d1", "text": "t"}',
    read_queries: "q1\ttext",
    read_qrels: "q1\t0\td1\t1",
    read_labelled_texts: "label\ttext",
}


@pytest.mark.parametrize(
    ("read", "line", "rule"),
    [
        (read_documents, "{", "is no JSON"),
        (read_documents, "", "is no JSON"),
        (read_documents, '["d2", "t"]', 'write {"doc_id": "...", "text": "..."}'),
        (read_documents, '{"doc_id": "d2"}', 'write {"doc_id": "...", "text": "..."}'),
        (read_documents, '{"doc_id": 2, "text": "t"}', 'write {"doc_id": "...", "text": "..."}'),
        (read_documents, '{"text": "t"}', 'write {"doc_id": "...", "text": "..."}'),
        (read_documents, '{"doc_id": "d1", "text": "t"}', "has the id 'd1'; an id is new"),
        (
            read_documents,
            '{"doc_id": "d 2", "text": "t"}',
            "'d 2'; an id is new, and has at least one character and no white space",
        ),
        (read_documents, '{"doc_id": "", "text": "t"}', "an id is new, and has at least one character"),
        (read_documents, '{"doc_id": "\\u0000", "text": "t"}', "no white space, NUL or lone surrogate"),
        (read_documents, '{"doc_id": "\\ud800", "text": "t"}', "no white space, NUL or lone surrogate"),
        (read_documents, '{"doc_id": "\\u2028", "text": "t"}', "no white space, NUL or lone surrogate"),
        (read_documents, "[" * 100_000, "is no JSON"),
        (read_queries, "q2 text", "write query_id TAB text"),
        (read_queries, "q2\t ", "write query_id TAB text"),
        (read_queries, "", "write query_id TAB text"),
        (read_queries, "\ttext", "an id is new, and has at least one character"),
        (read_queries, "q1\tother", "has the id 'q1'; an id is new"),
        (read_qrels, "q1\td2\t1", "write query_id TAB 0 TAB doc_id TAB grade"),
        (read_qrels, "q1\t0\td2\t1\tx", "write query_id TAB 0 TAB doc_id TAB grade"),
        (read_qrels, "q1\t0\td2\thigh", "the grade an integer"),
        (read_qrels, "q1\t0\td1\t2", "has d1 for q1 a second time"),
        (read_labelled_texts, "label text", "write label TAB text"),
        (read_labelled_texts, " \ttext", "write label TAB text"),
        (read_labelled_texts, "", "write label TAB text"),
    ],
)
def test_a_malformed_line_is_named_with_the_rule(
    tmp_path: Path, read: Callable[[Path], object], line: str, rule: str
) -> None:
    path = written(tmp_path / "file", f"{GOOD[read]}\n{line}\n")
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}, line 2: .*{re.escape(rule)}"):
        read(path)


@pytest.mark.parametrize("read", GOOD)
def test_a_line_that_is_not_utf_8_is_named(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = written(tmp_path / "file", GOOD[read].encode() + b"\n\xff\n")
    with pytest.raises(ValueError, match=r"line 2: is not UTF-8 .*save the file as UTF-8"):
        read(path)


@pytest.mark.parametrize("read", GOOD)
def test_a_missing_or_empty_file_is_named(tmp_path: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(ValueError, match="absent is missing"):
        read(tmp_path / "absent")
    with pytest.raises(ValueError, match="empty is empty"):
        read(written(tmp_path / "empty", ""))


@pytest.mark.parametrize("pair", ["en", "en-", "-de", "pt-BR-en", ""])
def test_a_pair_is_two_codes_and_a_hyphen(pair: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(pair))):
        languages_of(pair)


def test_a_pair_without_a_judged_query_is_refused(folder: Path) -> None:
    written(folder / "docs" / "fr.jsonl", '{"doc_id": "d9", "text": "neuf"}\n')
    with pytest.raises(ValueError, match=r"has no query for en-fr: none of the queries .* in qrels.test.tsv"):
        read_retrieval_set(folder, ["en-de", "en-fr"], split="test")
    with pytest.raises(ValueError, match=r"pairs is \[\], without a document language"):
        read_retrieval_set(folder, [], split="test")


def test_a_text_with_a_lone_surrogate_is_one_that_every_encoder_reads(tmp_path: Path) -> None:
    documents = DocumentFile(written(tmp_path / "en.jsonl", r'{"doc_id": "d", "text": "a\ud800b"}'))
    assert documents["d"] == next(documents.texts()) == "a\ufffdb"


def test_a_packed_file_is_read_if_it_is_whole(tmp_path: Path) -> None:
    file = written(tmp_path / "en.tsv.gz", "q\ttext\n")
    assert read_queries(file) == {"q": "text"}
    packed = file.read_bytes()
    for broken in (packed[:-4], b"q\ttext\n", packed[:10] + b"\xff" + packed[11:]):
        with pytest.raises(ValueError, match=r"en\.tsv\.gz is no whole gzip file .*; download or copy it again"):
            read_queries(written(tmp_path / "broken", broken).replace(file))


HOSTILE = [
    "\ufeff",
    "\0",
    "\u2028",
    "\x85",
    "\r\n",
    "\r",
    "\n",
    "\t",
    '"',
    "{",
    "[1]",
    "null",
    "\\ud800",
    " ",
    "0" * 5000,
]


@given(st.sampled_from(list(GOOD)), st.lists(st.tuples(st.integers(0, 90), st.sampled_from(HOSTILE)), max_size=3))
def test_a_reader_returns_or_names_the_file(
    tmp_path_factory: pytest.TempPathFactory, read: Callable[[Path], object], changes: list[tuple[int, str]]
) -> None:
    content = f"{GOOD[read]}\n{GOOD[read].replace('1', '2')}\n"
    for index, piece in changes:
        content = content[:index] + piece + content[index:]
    path = written(tmp_path_factory.getbasetemp() / "hostile", content)
    message = ""
    try:
        read(path)
    except ValueError as error:
        message = str(error)
    assert not message or message.startswith(str(path))


@given(st.dictionaries(st.from_regex(r"[^\s\0]+", fullmatch=True), st.text(), min_size=1))
def test_documents_that_are_written_are_read_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, documents: dict[str, str]
) -> None:
    lines = [json.dumps({"doc_id": doc_id, "text": text}, ensure_ascii=False) for doc_id, text in documents.items()]
    file = DocumentFile(written(tmp_path_factory.getbasetemp() / "en.jsonl", "\n".join(lines)))
    assert dict(file) == documents
    assert list(file.texts()) == list(documents.values())


def test_documents_are_read_one_by_one_and_in_order(tmp_path: Path) -> None:
    lines = '\ufeff{"doc_id": "b", "text": "eins é"}\r\n{"doc_id": "a", "text": " "}\r\n{"doc_id": "c", "text": "猫"}'
    documents = DocumentFile(written(tmp_path / "de.jsonl", lines))
    assert [documents[doc_id] for doc_id in ("c", "b", "a")] == ["猫", "eins é", " "]
    assert list(documents) == ["b", "a", "c"]
    assert list(documents.texts()) == ["eins é", " ", "猫"]
    assert (len(documents), documents.empty) == (3, 1)
    assert "a" in documents
    assert "d" not in documents


def test_what_only_the_qrels_name_is_counted(folder: Path) -> None:
    written(folder / "qrels.test.tsv", "q1 0 d1 1\nq1 0 gone 1\nq9 0 d2 0\nq9 0 lost 1\n")
    assert read_retrieval_set(folder, ["en-de", "en-en"], split="test").unknown == {"queries": 1, "documents": 2}


def test_a_document_is_a_query_for_itself_in_other_languages(folder: Path) -> None:
    found = read_retrieval_set(folder, ["en-de", "de-en", "en-all"], query_source="documents")
    assert found.queries == {"en": {"d1": "one", "d2": "two"}, "de": {"d1": "eins", "d3": "drei"}}
    assert found.judgements("en-de") == {"d1": {"d1": 1}}
    assert found.judgements("en-all") == {"d1": {"de.d1": 1}}  # not en.d1, which it is
    with pytest.raises(ValueError, match="no query for en-de: none of the late_sentences in the first language"):
        read_retrieval_set(folder, ["en-de"], query_source="late_sentences")
    assert found.doc_ids("all") == ["de.d1", "de.d3", "en.d1", "en.d2"]


def test_a_file_whose_documents_give_queries_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DocumentFile, "__getitem__", None)  # opens the file for each document
    found = read_retrieval_set(folder, ["en-de", "de-en"], query_source="documents")
    assert found.queries["en"] == {"d1": "one", "d2": "two"}
    assert late_sentences(found.documents["en"], "en") == {}


def test_of_a_split_the_documents_that_are_relevant_there_are_queries(folder: Path) -> None:
    found = read_retrieval_set(folder, ["en-de", "de-en"], split="dev", query_source="documents")
    assert found.queries == {"en": {"d1": "one"}, "de": {"d1": "eins"}}
    assert found.documents["en"].keys() == {"d1", "d2"}
    written(folder / "qrels.dev.tsv", "q4\t0\td1\t0\nq4\t0\td2\t1\n")
    with pytest.raises(ValueError, match=r"none of the documents .* in qrels\.dev\.tsv"):
        read_retrieval_set(folder, ["en-de"], split="dev", query_source="documents")
    with pytest.raises(ValueError, match=r"qrels\.train\.tsv"):
        read_retrieval_set(folder, ["en-de"], split="train", query_source="late_sentences")


def test_in_the_pool_a_query_seeks_its_documents_in_all_languages(folder: Path) -> None:
    found = read_retrieval_set(folder, ["en-de", "en-en", "en-all"], split="test")
    assert found.judgements("en-all") == {
        "q1": {"de.d1": 2, "en.d1": 2, "en.d2": 1},
        "q2": {"en.d2": 1},
        "q3": {"de.d3": 1, "de.d1": 0, "en.d1": 0},
    }


def test_late_sentences_are_from_the_last_third_of_long_documents() -> None:
    beginning = "Far too early to be drawn here. " * 80
    text = beginning + "Some sentence of the last part of it. " * 35 + "Short. "
    assert len(beginning) >= len(text) / 2
    documents = {"long": text, "short": "A sentence of enough length. " * 50, "same": text}
    found = late_sentences(documents, "en")
    assert found == dict.fromkeys(["long", "same"], "Some sentence of the last part of it.")
    many = {"x": " ".join(f"This is sentence number {index} of many." for index in range(200))}
    assert late_sentences(many, "en") == late_sentences(many, "en")
    assert int(late_sentences(many, "en")["x"].split()[4]) >= 130


@pytest.mark.parametrize(("code", "right"), [("deu", "de"), ("eng", "en"), ("zho_Hans", "zh"), ("iw", "he")])
def test_a_language_has_one_code(code: str, right: str) -> None:
    with pytest.raises(ValueError, match=f"language '{code}' is written '{right}' here"):
        check_language(code)
    check_language(right)
    check_language("pt_BR")
    check_language("pcm")
