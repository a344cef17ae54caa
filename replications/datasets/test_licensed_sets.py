"""Published data sets in their real layouts, small: what becomes of them, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import ir_datasets
import pytest

from evaluation.datasets import module_of
from evaluation.datasets.labelled_sets import read_labelled_texts
from evaluation.datasets.retrieval_sets import read_retrieval_set
from evaluation.recipes import ClassificationTask, RetrievalTask
from replications.datasets.clef import clef_documents, clef_topics
from tests.paths import written

pytestmark = pytest.mark.slow


def convert(task: RetrievalTask | ClassificationTask, output: Path) -> None:
    module_of(task).convert(task, output)


SDA = """<DOC>
<DOCNO>SDA.940101.0001</DOCNO>
<DOCID>SDA.940101.0001</DOCID>
<TI>  Unruhen in
Zürich </TI>
<LD>Bern, 1. Jan. (sda)</LD>
<KW>keywords that people assigned</KW>
<TX> M&auml;nner &amp; Frauen <P> standen auf.</TX>
</DOC>
<DOC>
<DOCNO> SDA.940101.0002 </DOCNO>
</DOC>
"""
TOPICS = """<top>
<num> C141 </num>
<DE-title> Briefbombe f\u00fcr Kiesbauer </DE-title>
<DE-desc> Finde Informationen
\u00fcber den Anschlag. </DE-desc>
<DE-narr> Nur Berichte. </DE-narr>
</top>
<top>
<num> C142 </num>
<DE-title> Christo verpackt </DE-title>
<DE-desc> Der Reichstag. </DE-desc>
</top>
"""


@pytest.mark.parametrize("encoding", ["iso-8859-1", "utf-8", "utf-8-sig"])
@pytest.mark.parametrize("name", ["sda.sgml", "sda.gz"])
def test_clef_documents_are_their_text_fields_whatever_their_encoding(tmp_path: Path, encoding: str, name: str) -> None:
    file = written(tmp_path / name, SDA.replace("\n", "\r\n").encode(encoding))
    assert list(clef_documents(file)) == [
        ("SDA.940101.0001", "Unruhen in Zürich\nBern, 1. Jan. (sda)\nMänner & Frauen standen auf."),
        ("SDA.940101.0002", ""),
    ]


def test_clef_topics_are_titles_and_descriptions(tmp_path: Path) -> None:
    file = written(tmp_path / "de.txt", TOPICS)
    assert list(clef_topics(file, "de")) == [
        ("141", "Briefbombe für Kiesbauer Finde Informationen über den Anschlag."),
        ("142", "Christo verpackt Der Reichstag."),
    ]
    with pytest.raises(ValueError, match=r"de.txt needs topics, .*, each with <num>, <fi-title>, <fi-desc>"):
        list(clef_topics(file, "fi"))


def test_a_clef_file_in_utf_8_with_a_broken_byte_is_named_and_not_read_as_another_encoding(tmp_path: Path) -> None:
    broken = SDA.encode().replace(b"Bern", b"Br\xfcgg")
    assert "Zürich" in SDA
    with pytest.raises(ValueError, match=r"sda\.sgml is UTF-8 but for byte 105; mend it"):
        list(clef_documents(written(tmp_path / "sda.sgml", broken.replace(b"Jan.", "Jän. Fév.".encode()))))
    with pytest.raises(ValueError, match=r"sda\.gz is no whole gzip file"):
        list(clef_documents(written(tmp_path / "sda.sgml", gzip.compress(broken)[:-9]).rename(tmp_path / "sda.gz")))


def clef_folder(folder: Path) -> Path:
    written(folder / "documents" / "de" / "sda" / "94.sgml", SDA)
    written(folder / "topics" / "de.txt", TOPICS)
    written(folder / "qrels" / "de.txt", "C141 0 SDA.940101.0001 1\r\n142 0 SDA.940101.0002 1\r\n142 0 gone 1\r\n")
    return folder


def test_clef_becomes_a_retrieval_set(tmp_path: Path) -> None:
    task = RetrievalTask(str(clef_folder(tmp_path / "clef")), ["de-de"], format="replications.datasets.clef")
    convert(task, tmp_path / "out")
    found = read_retrieval_set(tmp_path / "out", ["de-de"])
    assert found.judgements("de-de") == {"141": {"SDA.940101.0001": 1}, "142": {"SDA.940101.0002": 1}}
    assert found.queries["de"]["142"] == "Christo verpackt Der Reichstag."
    assert found.unknown == {"queries": 0, "documents": 1}
    assert found.documents["de"].empty == 1


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("documents/de/sda/94.sgml", "nothing", "94.sgml needs documents"),
        ("documents/de/sda/94.sgml", "<DOC><TEXT>x</TEXT></DOC>", "94.sgml needs documents.*each with a <DOCNO>"),
        ("topics/de.txt", "nothing", "de.txt needs topics"),
        ("topics/de.xml", TOPICS, r"topics has 2 files named de\.\*"),
    ],
)
def test_malformed_files_of_clef_are_named(tmp_path: Path, file: str, content: str, message: str) -> None:
    written(clef_folder(tmp_path / "clef") / file, content)
    with pytest.raises(ValueError, match=message):
        convert(RetrievalTask(str(tmp_path / "clef"), ["de-de"], format="replications.datasets.clef"), tmp_path / "out")
    with pytest.raises(ValueError, match=r"qrels has 0 files named fi"):
        convert(RetrievalTask(str(tmp_path / "clef"), ["de-fi"], format="replications.datasets.clef"), tmp_path / "out")


def test_what_ir_datasets_knows_becomes_a_retrieval_set(tmp_path: Path) -> None:
    dataset = ir_datasets.create_dataset(
        docs_tsv=str(written(tmp_path / "docs.tsv", "d1\tноль\nd2\tодин\n")),
        queries_tsv=str(written(tmp_path / "queries.tsv", "q1\tone\n")),
        qrels_trec=str(written(tmp_path / "qrels", "q1 0 d2 3\n")),
    )
    ir_datasets.registry.register("small", dataset)
    convert(RetrievalTask("small", ["en-ru"], format="replications.datasets.ir_datasets"), tmp_path / "out")
    found = read_retrieval_set(tmp_path / "out", ["en-ru"])
    assert dict(found.documents["ru"]) == {"d1": "ноль", "d2": "один"}
    assert (found.queries, found.qrels) == ({"en": {"q1": "one"}}, {"q1": {"d2": 3}})
    with pytest.raises(ValueError, match="ir_datasets holds one pair"):
        convert(
            RetrievalTask("small", ["en-ru", "en-fa"], format="replications.datasets.ir_datasets"), tmp_path / "out"
        )


def test_names_in_ir_datasets_are_those_that_the_recipes_use() -> None:
    for name in ("neuclir/1/fa/trec-2022", "neuclir/1/zh/trec-2023", "miracl/de/dev"):
        dataset = ir_datasets.load(name)
        assert dataset.has_docs()
        assert dataset.has_queries()
        assert dataset.has_qrels()


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0c", "\r"])
def test_only_a_line_feed_ends_a_sentence(tmp_path: Path, mark: str) -> None:
    for part in ("train.1000", "dev", "test"):
        written(tmp_path / "mldoc" / f"english.{part}", f"CCAT\tOne{mark} two.\r\nMCAT\tThree.\r\n")
    convert(ClassificationTask(str(tmp_path / "mldoc"), ["en"], format="replications.datasets.mldoc"), tmp_path / "out")
    assert labelled(tmp_path / "out", "en.test") == (["CCAT", "MCAT"], [f"One{mark} two.", "Three."])


def labelled(folder: Path, name: str) -> tuple[list[str], list[str]]:
    return read_labelled_texts(folder / f"{name}.tsv")


def test_mldoc_is_renamed(tmp_path: Path) -> None:
    for name in ("english.train.1000", "english.dev", "german.test"):
        written(tmp_path / "mldoc" / name, b"\xef\xbb\xbfCCAT\tProfits rose in Z\xc3\xbcrich .\r\nMCAT\tBonds\r\n")
    convert(ClassificationTask(str(tmp_path / "mldoc"), ["de"], format="replications.datasets.mldoc"), tmp_path / "out")
    for name in ("en.train", "en.dev", "de.test"):
        assert labelled(tmp_path / "out", name) == (["CCAT", "MCAT"], ["Profits rose in Zürich .", "Bonds"])
    with pytest.raises(ValueError, match=r"fi.test is missing"):
        convert(
            ClassificationTask(str(tmp_path / "mldoc"), ["fi"], format="replications.datasets.mldoc"), tmp_path / "out"
        )


def test_a_name_that_ir_datasets_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'none', which ir_datasets does not know"):
        convert(RetrievalTask("none", ["en-en"], format="replications.datasets.ir_datasets"), tmp_path / "out")
