"""Files of translations to tables of pairs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from huggingface_hub import DatasetCard

from replications.sentences import corpus, translation_files
from replications.sentences.pairs import Pairs
from tests.pretraining import as_arguments

pytestmark = pytest.mark.slow

ENGLISH = ["The cat sat.", "Hello", "", "Same", "a", "The cat sat.", "Dogs bark."]
GERMAN = ["Die Katze saß.", "Hallo", "leer", "Same", "a" * 10, "Die Katze saß.", "Hunde bellen."]


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def make(folder: Path, files: dict[str, list[str]], **changes: object) -> Path:
    values = {"output": folder / "parallel", "files": json.dumps(files)} | changes
    corpus.main(as_arguments(values))
    return folder / "parallel"


@pytest.mark.parametrize("form", ["moses", "tsv"])
def test_pairs_are_kept_once_and_what_is_left_out_is_counted(tmp_path, form, monkeypatch):
    monkeypatch.setattr(corpus, "ROWS_AT_ONCE", 2)
    if form == "moses":
        files = [write(tmp_path / "x.en", ENGLISH), write(tmp_path / "x.de", GERMAN)]
    else:
        files = [write(tmp_path / "x.tsv", [f"{one}\t{other}" for one, other in zip(ENGLISH, GERMAN)])]
    output = make(tmp_path, {"en-de": files}, dev_fraction=0.0, test_fraction=0.0)
    pairs = Pairs(output, "train")
    assert [(pairs[index].first, pairs[index].second) for index in range(len(pairs))] == [
        ("The cat sat.", "Die Katze saß."),
        ("Hello", "Hallo"),
        ("Dogs bark.", "Hunde bellen."),
    ]
    assert json.loads((output / "statistics.json").read_text()) == {
        "en-de": {
            "train": 3,
            "empty side": 1,
            "same sentence on both sides": 1,
            "length ratio": 1,
            "duplicate": 1,
        }
    }


def test_a_sentence_is_in_one_split_and_has_one_id_in_all_tables(tmp_path):
    english = [f"Sentence {index}." for index in range(300)]
    files = {
        f"en-{language}": [
            write(tmp_path / f"{language}.en", english),
            write(tmp_path / f"{language}.{language}", [f"{language} {sentence}" for sentence in english]),
        ]
        for language in ("de", "fr")
    }
    output = make(tmp_path, files, dev_fraction=0.2, test_fraction=0.1)
    german, french = (parquet.read_table(output / "pairs" / f"{languages}.parquet") for languages in files)
    assert german.select(["id", "first", "split"]) == french.select(["id", "first", "split"])
    splits = german["split"].to_pylist()
    assert 30 < splits.count("dev") < 90
    assert 10 < splits.count("test") < 60
    assert len(set(german["id"].to_pylist())) == 300


@pytest.mark.parametrize(("lines", "shorter"), [((2, 3), "x.en"), ((3, 2), "x.de")])
def test_files_of_unequal_length_are_named_with_the_line(tmp_path, lines, shorter):
    files = [write(tmp_path / f"x.{language}", ["one"] * count) for language, count in zip(("en", "de"), lines)]
    with pytest.raises(ValueError, match=rf"{shorter}, line 3: is missing, and the other file has it"):
        make(tmp_path, {"en-de": files})
    assert not (tmp_path / "parallel").exists()


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path):
    files = {"en-de": [write(tmp_path / "x.tsv", ["a\tb"])]}
    make(tmp_path, files)
    with pytest.raises(ValueError, match=r"output .*parallel exists; remove it, or name another folder"):
        make(tmp_path, files)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tb\nc\n", r"x\.tsv, line 2: has 0 tabs; it must have one"),
        (b"a\tb\nc\td\te\n", r"x\.tsv, line 2: has 2 tabs"),
        (b"a\tb\nc\t\xff\n", r"x\.tsv, line 2: is not UTF-8 .*; save the file as UTF-8"),
    ],
)
def test_a_line_that_is_no_pair_is_named(tmp_path, content, message):
    (tmp_path / "x.tsv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        make(tmp_path, {"en-de": [str(tmp_path / "x.tsv")]})


@pytest.mark.parametrize(
    ("files", "changes", "message"),
    [
        ({"en": ["x.tsv"]}, {}, "files has 'en': .*; <one>-<other> needs two files"),
        ({"en-de": ["x", "y", "z"]}, {}, "files has 'en-de': .*; <one>-<other> needs two files"),
        ({"en-de": ["x.tmx"]}, {}, r"files has 'en-de': .*x\.tmx.*, or one of \.tsv, \.parquet"),
        ({"en-de": ["x.tsv"]}, {"memory_limit": "much"}, "memory_limit is 'much', no size such as 4GB"),
        ({"en-de": ["x.en", "x.de"]}, {}, "No such file .*'x.en'"),
        ({"en-de": ["x.tsv"]}, {"max_length_ratio": 0}, "(?s)max_length_ratio.*v>0"),
    ],
)
def test_a_bad_recipe_is_refused(tmp_path, monkeypatch, files, changes, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x.tsv", ["a\tb"])
    with pytest.raises((ValueError, OSError), match=message):
        make(tmp_path, files, **changes)
    assert not (tmp_path / "parallel").exists()


def test_tables_keep_their_ids_and_splits(tmp_path):
    values = {"first": ["a b", "c d", "e f", None], "second": ["ä", "ö", "ü", "x"], "id": [7, 8, 9, 10]}
    parquet.write_table(pa.table(values | {"split": ["train", "dev", "test", "dev"]}), tmp_path / "x.parquet")
    output = make(tmp_path, {"en-de": [str(tmp_path / "x.parquet")]})
    assert parquet.read_table(output / "pairs" / "en-de.parquet").to_pylist() == [
        {"id": "7", "first": "a b", "second": "ä", "split": "train"},
        {"id": "8", "first": "c d", "second": "ö", "split": "dev"},
        {"id": "9", "first": "e f", "second": "ü", "split": "test"},
    ]
    counts = {"train": 1, "dev": 1, "test": 1, "empty side": 1}
    assert json.loads((output / "statistics.json").read_text()) == {"en-de": counts}
    parquet.write_table(pa.table(values | {"split": ["train", "valid", "test", "dev"]}), tmp_path / "y.parquet")
    with pytest.raises(ValueError, match=r"y\.parquet, row 2: split is 'valid'; it must be train, dev, test"):
        list(translation_files.read_table(tmp_path / "y.parquet"))
    parquet.write_table(pa.table({"a": ["b"]}), tmp_path / "z.parquet")
    with pytest.raises(ValueError, match=r"z\.parquet has a; its columns must be first and second"):
        list(translation_files.read_table(tmp_path / "z.parquet"))


def test_sentences_in_another_language_are_left_out_on_request(tmp_path):
    english = ["The cat sat on the mat.", "It was warm there.", "This was not translated."]
    german = ["Die Katze saß auf der Matte.", "Il faisait chaud, là-bas.", "This was never translated."]
    files = {"en-de": [write(tmp_path / "x.en", english), write(tmp_path / "x.de", german)]}
    output = make(tmp_path, files, dev_fraction=0.0, test_fraction=0.0, identify_languages="true")
    (pair,) = parquet.read_table(output / "pairs" / "en-de.parquet").to_pylist()
    assert (pair["first"], pair["second"]) == ("The cat sat on the mat.", "Die Katze saß auf der Matte.")
    assert json.loads((output / "statistics.json").read_text()) == {"en-de": {"train": 1, "another language": 2}}


def test_a_stopped_run_goes_on_and_ends_as_another(tmp_path, monkeypatch):
    english = [f"Sentence {index % 70}." for index in range(100)]
    files = {
        f"en-{code}": [
            write(tmp_path / f"{code}.en", english), write(tmp_path / f"{code}.to", [f"{code} {x}" for x in english])
        ]
        for code in ("de", "fr")
    }  # fmt: skip
    whole = make(tmp_path, files).rename(tmp_path / "whole")
    write_table, written = corpus.write_table, []

    def stopped(connection, recipe, languages, target):
        written.append(languages)
        if written == ["en-de", "en-fr"]:
            raise KeyboardInterrupt
        return write_table(connection, recipe, languages, target)

    monkeypatch.setattr(corpus, "write_table", stopped)
    monkeypatch.setattr(corpus, "ROWS_AT_ONCE", 7)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, files)
    assert not (tmp_path / "parallel").exists()
    output = make(tmp_path, files, memory_limit="1GB")
    assert written == ["en-de", "en-fr", "en-fr"]
    for file in ("pairs/en-de.parquet", "pairs/en-fr.parquet", "statistics.json"):
        assert (output / file).read_bytes() == (whole / file).read_bytes()
    assert json.loads((output / "statistics.json").read_text())["en-de"]["duplicate"] == 30
    assert not list(tmp_path.glob("parallel.steps"))


def test_the_card_says_what_is_in_the_folder(tmp_path):
    lines = ["a b\tc", "same\tsame", "d e\tf"]
    output = make(tmp_path, {"en-de": [write(tmp_path / "x.tsv", lines)]}, dev_fraction=0.0, test_fraction=0.0)
    card = DatasetCard.load(output / "README.md")
    assert card.data.language == ["de", "en"]
    assert card.data.configs == [{"config_name": "en-de", "data_files": "pairs/en-de.parquet"}]
    assert "| pair | train | same sentence on both sides | sources |" in card.text
    assert f"| en-de | 2 | 1 | {tmp_path}/x.tsv |" in card.text
