"""Files of translations to tables of pairs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from training.corpus import parallel
from training.data.parallel import Pairs

ENGLISH = ["The cat sat.", "Hello", "", "Same", "a", "The cat sat.", "Dogs bark."]
GERMAN = ["Die Katze saß.", "Hallo", "leer", "Same", "a" * 10, "Die Katze saß.", "Hunde bellen."]


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def make(folder: Path, files: dict[str, list[str]], **changes: object) -> Path:
    values = {"output": folder / "parallel", "files": json.dumps(files)} | changes
    parallel.main([part for name, value in values.items() for part in (f"--{name}", str(value))])
    return folder / "parallel"


@pytest.mark.parametrize("form", ["moses", "tsv"])
def test_pairs_are_kept_once_and_what_is_left_out_is_counted(tmp_path, form, monkeypatch):
    monkeypatch.setattr(parallel, "ROWS_AT_ONCE", 2)
    if form == "moses":
        files = [write(tmp_path / "x.en", ENGLISH), write(tmp_path / "x.de", GERMAN)]
    else:
        files = [write(tmp_path / "x.tsv", [f"{one}\t{other}" for one, other in zip(ENGLISH, GERMAN)])]
    output = make(tmp_path, {"en-de": files}, dev_share=0.0, test_share=0.0)
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
    output = make(tmp_path, files, dev_share=0.2, test_share=0.1)
    german, french = (parquet.read_table(output / "pairs" / f"{languages}.parquet") for languages in files)
    assert german.select(["id", "first", "split"]) == french.select(["id", "first", "split"])
    splits = german["split"].to_pylist()
    assert 30 < splits.count("dev") < 90
    assert 10 < splits.count("test") < 60
    assert len(set(german["id"].to_pylist())) == 300


@pytest.mark.parametrize(("lines", "shorter"), [((2, 3), "x.en"), ((3, 2), "x.de")])
def test_files_of_unequal_length_are_named_with_the_line(tmp_path, lines, shorter):
    files = [write(tmp_path / f"x.{language}", ["one"] * count) for language, count in zip(("en", "de"), lines)]
    with pytest.raises(ValueError, match=rf"{shorter} ends before line 3, which .*x\.\w\w has"):
        make(tmp_path, {"en-de": files})
    assert not list(tmp_path.glob("parallel*"))


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path):
    files = {"en-de": [write(tmp_path / "x.tsv", ["a\tb"])]}
    make(tmp_path, files)
    with pytest.raises(ValueError, match="parallel exists; remove it, or name another output"):
        make(tmp_path, files)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tb\nc\n", r"x\.tsv, line 2: there are 0 tabs; a line must have one"),
        (b"a\tb\nc\td\te\n", r"x\.tsv, line 2: there are 2 tabs"),
        (b"a\tb\nc\t\xff\n", r"x\.tsv, line 2: 'utf-8' codec .*; convert the file to UTF-8"),
    ],
)
def test_a_line_that_is_no_pair_is_named(tmp_path, content, message):
    (tmp_path / "x.tsv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        make(tmp_path, {"en-de": [str(tmp_path / "x.tsv")]})


@pytest.mark.parametrize(
    ("files", "changes", "message"),
    [
        ({}, {}, "files is empty"),
        ({"en": ["x.tsv"]}, {}, "files has 'en'; a pair of languages is written <one>-<other>"),
        ({"en-de": ["x.en"]}, {}, "it must have two, or one that ends with .tsv"),
        ({"en-de": ["x.en", "x.de"]}, {}, "en-de: there is no file x.en"),
        ({"en-de": ["x.tsv"]}, {"max_length_ratio": 0.5}, "max_length_ratio is 0.5; it must be at least 1"),
        ({"en-de": ["x.tsv"]}, {"dev_share": 1.0}, "dev_share is 1.0 and test_share 0.01"),
    ],
)
def test_a_bad_recipe_is_refused(tmp_path, monkeypatch, files, changes, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x.tsv", ["a\tb"])
    with pytest.raises(ValueError, match=message):
        make(tmp_path, files, **changes)
    assert not (tmp_path / "parallel").exists()
