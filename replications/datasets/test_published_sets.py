"""Public data sets in their real layouts, small: what becomes of them, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from evaluation.datasets import module_of
from evaluation.datasets.labelled_sets import read_labelled_texts
from evaluation.datasets.retrieval_sets import read_retrieval_set
from evaluation.recipes import ClassificationTask, RetrievalTask
from hmde.common.fingerprints import digest
from replications.datasets import public
from replications.datasets.files import parts
from replications.datasets.languages import long_code
from replications.datasets.sib200 import file_of
from tests.paths import written


def json_lines(*rows: dict) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def convert(task: RetrievalTask | ClassificationTask, output: Path) -> None:
    task = replace(task, format=f"replications.datasets.{task.format}")
    module_of(task).convert(task, output)


def labelled(folder: Path, name: str) -> tuple[list[str], list[str]]:
    return read_labelled_texts(folder / f"{name}.tsv")


def test_mldr_becomes_a_retrieval_set(tmp_path: Path) -> None:
    folder = tmp_path / "mldr" / "mldr-v1.0-de"
    written(
        folder / "corpus.jsonl.gz", json_lines({"docid": "doc-de-1", "text": "eins"}, {"docid": "d2", "text": "zwei"})
    )
    passages = {"positive_passages": [{"docid": "d2", "text": "zwei"}], "negative_passages": []}
    written(folder / "test.jsonl.gz", json_lines({"query_id": "q-de-1", "query": "Was\tist?", **passages}))
    convert(RetrievalTask(str(tmp_path / "mldr"), ["de-de"], format="mldr"), tmp_path / "out")
    found = read_retrieval_set(tmp_path / "out", ["de-de"])
    assert found.queries == {"de": {"q-de-1": "Was ist?"}}
    assert found.qrels == {"q-de-1": {"d2": 1}}
    with pytest.raises(ValueError, match=r"mldr-v1.0-en/corpus.jsonl.gz is missing"):
        convert(RetrievalTask(str(tmp_path / "mldr"), ["en-de"], format="mldr"), tmp_path / "out")
    with pytest.raises(ValueError, match=r"mldr-v1.0-fr/corpus.jsonl.gz is missing"):
        convert(RetrievalTask(str(tmp_path / "mldr"), ["fr-fr"], format="mldr"), tmp_path / "out")


def test_ntrex_becomes_documents_with_one_id_in_all_languages(tmp_path: Path) -> None:
    folder = tmp_path / "ntrex"
    written(folder / "DOCUMENT_IDS.tsv", "bbc.1\nbbc.1\nrt.2\n")
    written(folder / "NTREX-128" / "newstest2019-src.eng.txt", "One.\nTwo.\nThree.\n")
    written(folder / "NTREX-128" / "newstest2019-ref.deu.txt", "Eins.\nZwei.\nDrei.\n")
    task = RetrievalTask(str(folder), ["en-de", "de-en"], format="ntrex", query_source="documents")
    convert(task, tmp_path / "out")
    found = read_retrieval_set(tmp_path / "out", task.pairs, query_source="documents")
    assert dict(found.documents["de"]) == {"bbc.1": "Eins.\nZwei.", "rt.2": "Drei."}
    assert found.queries["en"] == {"bbc.1": "One.\nTwo.", "rt.2": "Three."}
    written(folder / "NTREX-128" / "newstest2019-ref.deu.txt", "Eins.\n")
    with pytest.raises(ValueError, match=r"newstest2019-ref.deu.txt has 1 lines, DOCUMENT_IDS.tsv 3"):
        convert(task, tmp_path / "out")


def test_a_question_seeks_the_sentence_in_which_its_answer_begins_or_the_paragraph(tmp_path: Path) -> None:
    def paragraph(text: str, breaks: list[list[int]], asked: dict[str, int]) -> dict:
        questions = [
            {"id": name, "question": f"{name}?", "answers": [{"answer_start": at}]} for name, at in asked.items()
        ]
        return {"context": text, "sentence_breaks": breaks, "qas": questions}

    contents = {
        # The first and the last sentence read alike, so both answer q1. The answer of q2 begins between two sentences.
        "en": paragraph("It is so. No. It is so.", [[0, 9], [10, 13], [14, 23]], {"q1": 3, "q2": 9, "q3": 10}),
        "de": paragraph("Ja. Nein.", [[0, 3], [4, 9]], {"q1": 0, "q2": 4, "q3": 4}),
    }
    for language, content in contents.items():
        squad = {"data": [{"paragraphs": [content]}]}
        written(tmp_path / "lareqa" / f"{language}.json", json.dumps(squad))
    task = RetrievalTask(str(tmp_path / "lareqa"), ["en-all", "de-all", "en-de", "en-en"], format="lareqa")
    convert(task, tmp_path / "out")
    found = read_retrieval_set(tmp_path / "out", task.pairs)
    assert dict(found.documents["en"]) == {"en-0.0": "It is so.", "en-0.1": "No.", "en-0.2": "It is so."}
    assert found.judgements("en-all") == {
        "q1": {"en.en-0.0": 1, "en.en-0.2": 1, "de.de-0.0": 1},
        "q3": {"en.en-0.1": 1, "de.de-0.1": 1},
    }
    assert found.judgements("de-all")["q2"] == {"de.de-0.1": 1}
    convert(replace(task, format="xquad", pairs=["en-de"]), tmp_path / "paragraphs")
    paragraphs = read_retrieval_set(tmp_path / "paragraphs", ["en-de"])
    assert dict(paragraphs.documents["de"]) == {"p0": "Ja. Nein."}
    assert paragraphs.judgements("en-de") == {"q1": {"p0": 1}, "q2": {"p0": 1}, "q3": {"p0": 1}}
    written(tmp_path / "lareqa" / "de.json", "{}")
    with pytest.raises(ValueError, match=r"de\.json is not in SQuAD's format"):
        convert(task, tmp_path / "out")


@pytest.fixture
def repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of public sets, in a folder that stands for their repositories."""
    sums = []
    for name in ("lareqa/ar.json", "sib200/data/eng_Latn/dev.tsv"):
        file = written(tmp_path / "there" / name, name)
        sums.append(f"{digest(file)}  {name}\n")
    addresses = {folder: f"file://{tmp_path / 'there' / folder}" for folder in public.ADDRESSES}
    monkeypatch.setattr(public, "ADDRESSES", addresses)
    monkeypatch.setattr(public, "CHECKSUMS", written(tmp_path / "public.sha256", "".join(sums)))
    return tmp_path / "there"


def test_public_sets_are_fetched_once_and_compared_with_their_checksums(repositories: Path, tmp_path: Path) -> None:
    output = tmp_path / "here"
    assert public.fetch(output) == 2
    assert (output / "sib200/data/eng_Latn/dev.tsv").read_text() == "sib200/data/eng_Latn/dev.tsv"
    assert public.fetch(output) == 0
    (output / "lareqa/ar.json").write_text("damaged")
    assert public.fetch(output) == 1
    (output / "lareqa/ar.json").unlink()
    written(repositories / "lareqa/ar.json", "another file")
    with pytest.raises(ValueError, match=r"lareqa/ar.json is not the file that public.sha256 knows"):
        public.fetch(output)
    assert not (output / "lareqa/ar.json").exists()
    (repositories / "lareqa/ar.json").unlink()
    with pytest.raises(OSError, match=r"lareqa/ar.json cannot be fetched .*; put the file at .*here/lareqa/ar.json"):
        public.fetch(output)


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0c", "\r"])
def test_only_a_line_feed_ends_a_sentence(tmp_path: Path, mark: str) -> None:
    written(tmp_path / "ntrex" / "DOCUMENT_IDS.tsv", "bbc.1\nrt.2\n")
    for name in ("src.eng", "ref.deu"):
        written(tmp_path / "ntrex" / "NTREX-128" / f"newstest2019-{name}.txt", f"One{mark} two.\r\nThree.\n")
    task = RetrievalTask(str(tmp_path / "ntrex"), ["en-de"], format="ntrex", query_source="documents")
    convert(task, tmp_path / "out")
    found = read_retrieval_set(tmp_path / "out", ["en-de"], query_source="documents")
    assert dict(found.documents["de"]) == {"bbc.1": f"One{mark} two.", "rt.2": "Three."}


def test_ntrex_names_some_languages_by_region_or_kind(tmp_path: Path) -> None:
    written(tmp_path / "ntrex" / "DOCUMENT_IDS.tsv", "bbc.1\n")
    for code in ("zho-TW", "zho-CN", "por-BR", "por", "arb"):
        written(tmp_path / "ntrex" / "NTREX-128" / f"newstest2019-ref.{code}.txt", f"{code}\n")
    task = RetrievalTask(str(tmp_path / "ntrex"), ["zh-pt", "zh-ar"], format="ntrex", query_source="documents")
    convert(task, tmp_path / "out")
    found = read_retrieval_set(tmp_path / "out", task.pairs, query_source="documents")
    assert {language: texts["bbc.1"] for language, texts in found.documents.items()} == {"pt": "por", "ar": "arb"}
    assert found.queries == {"zh": {"bbc.1": "zho-CN"}}
    with pytest.raises(ValueError, match=r"newstest2019-ref.fin.txt is missing"):
        convert(RetrievalTask(str(tmp_path / "ntrex"), ["fi-pt"], format="ntrex"), tmp_path / "out")


def test_masakhanews_becomes_headlines_and_texts(tmp_path: Path) -> None:
    header = "category\theadline\ttext\turl\n"
    for language, part in (("eng", "train"), ("eng", "dev"), ("swa", "test")):
        row = f"sports\tHead {language}\tText {part}.\thttps://x\n"
        written(tmp_path / "news" / "data" / language / f"{part}.tsv", header + row)
    convert(ClassificationTask(str(tmp_path / "news"), ["sw"], format="masakhanews"), tmp_path / "out")
    assert labelled(tmp_path / "out", "sw.test") == (["sports"], ["Head swa Text test."])
    assert labelled(tmp_path / "out", "en.dev") == (["sports"], ["Head eng Text dev."])


def test_sib200_becomes_labelled_sentences(tmp_path: Path) -> None:
    for language, part in (("eng_Latn", "train"), ("eng_Latn", "dev"), ("zho_Hans", "test"), ("swh_Latn", "test")):
        text = f"index_id\tcategory\ttext\n1\tgeography\tA {part}.\n"
        written(tmp_path / "sib" / "data" / language / f"{part}.tsv", text)
    convert(ClassificationTask(str(tmp_path / "sib"), ["zh", "sw"], format="sib200"), tmp_path / "out")
    assert labelled(tmp_path / "out", "zh.test") == (["geography"], ["A test."])


def test_the_files_of_sib200_in_the_public_recipe_are_those_that_are_fetched() -> None:
    recipe = yaml.safe_load(Path("configuration/evaluate/public.yaml").read_text())
    task = ClassificationTask(**recipe["classification"]["sib200"])
    checked = public.CHECKSUMS.read_text()
    files = [file_of(language, part) for language, part in parts(task)]
    assert len(files) == 38
    assert [file for file in files if f"  sib200/{file}\n" not in checked] == []


def test_a_quoted_field_may_hold_line_feeds(tmp_path: Path) -> None:
    for part in ("train", "dev", "test"):
        content = 'category\theadline\ttext\nsports\tA\t"one\ntwo ""three"""\n'
        written(tmp_path / "news" / "data" / "eng" / f"{part}.tsv", content)
    convert(ClassificationTask(str(tmp_path / "news"), ["en"], format="masakhanews"), tmp_path / "out")
    assert labelled(tmp_path / "out", "en.test") == (["sports"], ['A one two "three"'])


NEWS = "category\theadline\ttext\nsports\tA\tone\n"
DOCUMENT, CORPUS = {"docid": "d", "text": "A law."}, "mldr-v1.0-en/corpus.jsonl.gz"


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("masakhanews", "data/eng/train.tsv", "category\ttext\nsports\tone\n", "line 2: lacks one of the columns"),
        ("masakhanews", "data/eng/train.tsv", NEWS + "sports\tA\n", "line 3: lacks one of the columns category, head"),
        ("masakhanews", "data/eng/train.tsv", NEWS + '"' + "x" * 200_000, r"line 3: cannot be read \(field larger"),
        ("masakhanews", "data/eng/train.tsv", NEWS.encode() + b"a\tb\t\xfc\n", "line 3: is not UTF-8"),
        ("mldr", CORPUS, json_lines(DOCUMENT) + "{\n", "line 2: is no JSON"),
        ("mldr", CORPUS, json_lines(DOCUMENT, []), r"line 2: lacks a field, or has one of another type"),
        ("mldr", CORPUS, json_lines(DOCUMENT | {"text": 5}), "line 1: .* are not all strings"),
        ("mldr", CORPUS, json_lines({"docid": "d"}), "line 1: lacks a field.*'text'"),
        ("mldr", CORPUS, "", "gz is empty"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(
    tmp_path: Path, name: str, file: str, content: str | bytes, message: str
) -> None:
    written(tmp_path / file, content)
    task: RetrievalTask | ClassificationTask = RetrievalTask(str(tmp_path), ["en-en"], format=name)
    if name == "masakhanews":
        task = ClassificationTask(str(tmp_path), ["en"], format=name)
    with pytest.raises(ValueError, match=message):
        convert(task, tmp_path / "out")


def test_languages_that_have_a_short_code_are_found_by_their_long_one() -> None:
    assert [long_code(code) for code in ("de", "zh", "sw", "pcm", "am")] == ["deu", "zho", "swa", "pcm", "amh"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mldr", "format is 'mldr'; it must be hmde, or the full name of a module"),
        (".mldr", "format is '.mldr'; it must be hmde, or the full name of a module"),
        ("evaluation.datasets.nope", "format is 'evaluation.datasets.nope', but there is no module named"),
        ("nowhere.mldr", "format is 'nowhere.mldr', but there is no module named 'nowhere'; it must be hmde"),
        ("evaluation.recipes", r"format is 'evaluation.recipes', a module without a function convert\(task, output\)"),
    ],
)
def test_a_format_that_no_module_reads_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        module_of(RetrievalTask("data", ["en-de"], format=name))


def test_a_module_that_a_format_needs_is_named_by_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_the_user").mkdir()
    (tmp_path / "of_the_user" / "format_with_needs.py").write_text("import surely_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_not_there"):
        module_of(RetrievalTask("data", ["en-de"], format="of_the_user.format_with_needs"))
