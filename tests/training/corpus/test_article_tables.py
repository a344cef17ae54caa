"""Tables of articles that users bring: every bad row and file is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.corpus.own_articles import TEXT, article, run, world, write_articles, write_table
from training.corpus import ARTICLE_COLUMNS
from training.corpus.article_tables import WHERE_THERE_IS_NONE, copy_table


def change(**fields: object) -> Callable[[list], None]:
    """Changes the third row; `...` removes a field."""

    def changed(rows: list) -> None:
        rows[2] = {name: value for name, value in {**rows[2], **fields}.items() if value is not ...}

    return changed


def replace(row: object) -> Callable[[list], None]:
    return lambda rows: rows.__setitem__(2, row)


BAD_ROWS = [
    *((change(**{name: ...}), f"has no {name}") for name in ARTICLE_COLUMNS if name not in WHERE_THERE_IS_NONE),
    *((change(**{name: None}), f"{name} is None") for name in ARTICLE_COLUMNS),
    *((change(**{name: 17}), f"{name} is 17") for name in ARTICLE_COLUMNS),
    (change(text=["a list"]), r"text is \['a list'\]; it must be a text"),
    (change(title={"a": 1}), r"title is \{'a': 1\}; it must be a text"),
    (change(categories="river, place"), "categories is 'river, place'; it must be a list of texts"),
    (change(categories=["river", 3]), "one of categories is 3"),
    (change(categories=["river", None]), "one of categories is None"),
    (change(categories=["river", ""]), "one of categories is empty"),
    (change(concept_id=""), "concept_id is empty"),
    (change(split="Train"), "split is 'Train'; it must be train, dev or test"),
    (change(split=""), "split is ''"),
    (change(language="it"), "language is 'it'; the file is for 'fr'"),
]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(("break_it", "message"), BAD_ROWS, ids=[message for _, message in BAD_ROWS])
def test_a_row_that_is_no_article_is_named_with_its_file_and_the_rule(tmp_path, break_it, message, suffix):
    rows = [row for row in world() if row["language"] == "fr"]
    break_it(rows)
    path = write_table(tmp_path / f"fr{suffix}", rows)
    if path is None:  # Parquet has one type in a column
        return
    where = ", line 3" if suffix == ".jsonl" else ", row [13]"
    with pytest.raises(ValueError, match=rf"fr\{suffix}{where}: .*{message}"):
        copy_table(path, "fr", tmp_path / "copy.parquet")
    assert [file.name for file in tmp_path.glob("[!.]*")] == [path.name]


BAD_FILES = [
    (b"", "has no row"),
    (b"\n \n", "has no row"),
    (b"[1]\n", r"line 1: is \[1\]; an article is a JSON object with concept_id, .*split"),
    (b"\n7\n", "line 2: is 7; an article is a JSON object"),
    (b"null\n", "line 1: is None"),
    (b"{not json}\n", "line 1: is no JSON"),
    (b'{"concept_id": "Q1"', "line 1: is no JSON"),
    (b"[" * 100_000, "line 1: is no JSON"),
    (b"\xff\xfe{\x00}\x00\n\x00", "line 1: is not UTF-8"),
    (json.dumps(article("Q0", "fr", ["river"])).encode("utf-16"), "line 1: is not UTF-8"),
    (json.dumps(article("Q0", "fr", ["river"])).replace("sentence", "\xe9").encode("latin-1"), "line 1: is not UTF-8"),
    (json.dumps([article("Q0", "fr", ["river"])], indent=1).encode(), "line 1: is no JSON"),
    (
        json.dumps(article("Q0", "fr", ["river"], text="half \ud83d")).encode(),
        "half of a surrogate pair at character 6",
    ),
]


@pytest.mark.parametrize(("content", "message"), BAD_FILES)
def test_a_file_that_is_no_table_of_articles_is_named_with_the_line(tmp_path, content, message):
    (tmp_path / "fr.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=rf"fr\.jsonl.*{message}"):
        copy_table(tmp_path / "fr.jsonl", "fr", tmp_path / "copy.parquet")
    assert [file.name for file in tmp_path.glob("[!.]*")] == ["fr.jsonl"]


@pytest.mark.parametrize("damage", ["no Parquet", "cut", "bytes changed", "text not UTF-8", "a column twice", "no row"])
def test_a_parquet_file_that_is_damaged_is_named(tmp_path, damage):
    path = tmp_path / "fr.parquet"
    table = pa.Table.from_pylist([article(f"Q{index}", "fr", ["river"]) for index in range(200)])
    if damage == "text not UTF-8":
        title = pa.Array.from_buffers(pa.string(), 200, pa.array([b"\xff"] * 200).buffers())
        table = table.set_column(2, "title", title)
    elif damage == "a column twice":
        table = table.append_column("text", table["text"])
    elif damage == "no row":
        table = table.slice(0, 0)
    parquet.write_table(table, path)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[:-20]
    elif damage == "no Parquet":
        content = bytearray(b"concept_id,language\n")
    elif damage == "bytes changed":
        content[4:400] = bytes(396)
    path.write_bytes(content)
    messages = {
        "text not UTF-8": "row 1: has a value that Python does not know",
        "a column twice": "two columns of one name",
        "no row": "has no row",
        "bytes changed": "damaged",
    }
    with pytest.raises(ValueError, match=rf"fr\.parquet.*{messages.get(damage, 'no Parquet file')}"):
        copy_table(path, "fr", tmp_path / "copy.parquet")
    assert [file.name for file in tmp_path.glob("[!.]*")] == ["fr.parquet"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


def is_text(value: object) -> bool:
    return isinstance(value, str) and not any("\ud800" <= sign <= "\udfff" for sign in value)


IS_VALID = {name: is_text for name in ARTICLE_COLUMNS} | {
    "concept_id": lambda value: is_text(value) and value != "",
    "language": lambda value: value == "fr",
    "split": lambda value: value in ("train", "dev", "test") and isinstance(value, str),
    "categories": lambda value: isinstance(value, list) and all(is_text(name) and name for name in value),
}


@pytest.mark.slow
@settings(max_examples=150, derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*ARTICLE_COLUMNS]), JSON), max_size=3), st.integers(0, 4))
def test_a_table_of_any_values_is_read_as_it_is_or_refused_with_its_line(changes, index):
    rows = [article(f"Q{row}", "fr", ["river"]) for row in range(5)]
    rows[index] |= dict(changes)
    with TemporaryDirectory() as folder:
        path, copy = Path(folder) / "fr.jsonl", Path(folder) / "copy.parquet"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        if all(IS_VALID[name](value) for name, value in rows[index].items()):
            assert copy_table(path, "fr", copy) == 5
            assert parquet.read_table(copy).to_pylist() == [{**row, "row": n} for n, row in enumerate(rows, start=1)]
        else:
            with pytest.raises(ValueError, match=rf"fr\.jsonl, line {index + 1}: "):
                copy_table(path, "fr", copy)
            assert not copy.exists()


@pytest.mark.parametrize(
    "write",
    [
        lambda rows: b"\xef\xbb\xbf" + "".join(json.dumps(row) + "\n" for row in rows).encode(),
        lambda rows: "\r\n\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode(),
    ],
    ids=["byte-order mark", "line ends of Windows, empty lines, none at the end"],
)
def test_what_editors_do_to_a_file_changes_nothing(tmp_path, write):
    rows = [article(f"Q{index}", "fr", ["river\u2028\x85"], text=TEXT + "\u2028 \x00") for index in range(2)]
    (tmp_path / "fr.jsonl").write_bytes(write(rows))
    assert copy_table(tmp_path / "fr.jsonl", "fr", tmp_path / "copy.parquet") == 2
    assert parquet.read_table(tmp_path / "copy.parquet", columns=list(ARTICLE_COLUMNS)).to_pylist() == rows


@pytest.mark.parametrize("dictionary", [False, True])
def test_json_lines_and_parquet_give_the_same_corpus(tmp_path, dictionary):
    folder = write_articles(tmp_path / "articles", world())
    run(folder, tmp_path / "of-lines")
    for path in list(folder.iterdir()):
        table = pa.Table.from_pylist([json.loads(line) for line in path.read_text().splitlines()])
        if dictionary:  # as pandas writes categories
            table = table.set_column(7, "split", table["split"].dictionary_encode())
        parquet.write_table(table.append_column("more", table["title"]), path.with_suffix(".parquet"))
        path.unlink()
    run(folder, tmp_path / "of-parquet")
    for path in ("triples.parquet", "articles/de.parquet", "articles/en.parquet", "articles/fr.parquet"):
        assert (tmp_path / "of-lines" / path).read_bytes() == (tmp_path / "of-parquet" / path).read_bytes()


def test_categories_source_and_license_may_be_missing(tmp_path):
    rows = [article(f"Q{index}", "fr", ["river"]) for index in range(2)]
    without = [{name: row[name] for name in row if name not in WHERE_THERE_IS_NONE} for row in rows]
    for path in (tmp_path / "fr.jsonl", tmp_path / "fr.parquet"):
        copy_table(write_table(path, without), "fr", tmp_path / "copy.parquet")
        copied = parquet.read_table(tmp_path / "copy.parquet", columns=list(ARTICLE_COLUMNS)).to_pylist()
        assert copied == [row | WHERE_THERE_IS_NONE for row in rows]


def test_two_articles_on_one_concept_in_a_language_are_named(tmp_path):
    folder = write_articles(tmp_path / "articles", world())
    again = json.dumps(article("Q2", "fr", ["river"], text="Short."))
    with (folder / "fr.jsonl").open("a") as file:
        file.write(f"\n{again}\n{again}\n")
    with pytest.raises(ValueError, match=r"fr\.jsonl, lines 2 and 7 are both of concept Q2; keep one article"):
        run(folder, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_two_files_for_one_language_are_refused(tmp_path):
    folder = write_articles(tmp_path / "articles", world())
    write_table(folder / "fr.parquet", [row for row in world() if row["language"] == "fr"])
    with pytest.raises(ValueError, match=r"has fr\.parquet and fr\.jsonl; keep one of them"):
        run(folder, tmp_path / "corpus")


def test_a_language_without_a_file_is_named(tmp_path):
    folder = write_articles(tmp_path / "articles", world())
    (folder / "fr.jsonl").unlink()
    with pytest.raises(ValueError, match=r"has no fr\.parquet and no fr\.jsonl"):
        run(folder, tmp_path / "corpus")
