"""Triples from local article tables."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from training.corpus import ARTICLE_COLUMNS, main
from training.corpus.join import draw_triples
from training.corpus.progress import progress
from training.corpus.tables import copy_table

LANGUAGES = ["de", "en", "fr"]
TEXT = "One sentence. Another one. A third. A fourth one. And a fifth."


def article(concept: str, language: str, categories: list[str], split: str = "train", text: str = TEXT) -> dict:
    values = (concept, language, f"{concept} {language}", text, categories, "test", "CC0-1.0", split)
    return dict(zip(ARTICLE_COLUMNS, values))


def write_articles(folder: Path, articles: list[dict]) -> Path:
    folder.mkdir(exist_ok=True)
    for language in LANGUAGES:
        lines = [json.dumps(row) for row in articles if row["language"] == language]
        (folder / f"{language}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def world() -> list[dict]:
    """Concepts 0-5 are rivers, 6-9 cities; 9 is alone in its split; French lacks the odd ones."""
    return [
        article(f"Q{index}", language, ["river" if index < 6 else "city", "place"], "dev" if index == 9 else "train")
        for index in range(10)
        for language in LANGUAGES
        if language != "fr" or index % 2 == 0
    ]


def run(articles: Path, output: Path, *options: str) -> list[dict]:
    main(["--articles", str(articles), "--output", str(output), "--languages", json.dumps(LANGUAGES), *options])
    columns = duckdb.sql(f"SELECT * FROM '{output}/triples.parquet'")
    return [dict(zip(columns.columns, row)) for row in columns.fetchall()]


def test_every_triple_is_what_the_paper_defines(tmp_path):
    articles = world()
    triples = run(write_articles(tmp_path / "articles", articles), tmp_path / "corpus")
    known = {(row["concept_id"], row["language"]): row for row in articles}
    for triple in triples:
        anchor = known[triple["concept_id"], triple["anchor_language"]]
        positive = known[triple["concept_id"], triple["positive_language"]]
        negative = known[triple["negative_id"], triple["anchor_language"]]
        second = known[triple["positive_negative_id"], triple["positive_language"]]
        assert anchor["language"] != positive["language"]
        assert triple["category"] in set(anchor["categories"]) & set(negative["categories"])
        assert set(positive["categories"]) & set(second["categories"])
        assert triple["concept_id"] not in (triple["negative_id"], triple["positive_negative_id"])
        assert {row["split"] for row in (anchor, positive, negative, second)} == {triple["split"]}


def test_every_pair_of_languages_of_a_concept_comes_once(tmp_path):
    triples = run(write_articles(tmp_path / "articles", world()), tmp_path / "corpus")
    drawn = sorted((t["concept_id"], *sorted((t["anchor_language"], t["positive_language"]))) for t in triples)
    pairs = {"even": [("de", "en"), ("de", "fr"), ("en", "fr")], "odd": [("de", "en")]}
    expected = [(f"Q{index}", *pair) for index in range(9) for pair in pairs["odd" if index % 2 else "even"]]
    assert drawn == sorted(expected)  # Q9 has no other article in its split, so no negative


def test_a_seed_decides_the_triples_and_threads_do_not(tmp_path):
    articles = write_articles(tmp_path / "articles", world())
    first = run(articles, tmp_path / "one")
    assert run(articles, tmp_path / "two") == first
    assert run(articles, tmp_path / "three", "--seed", "7") != first


def test_short_documents_are_dropped_and_a_first_line_that_is_the_title_is_cut(tmp_path):
    rows = world()
    rows[0]["text"] = "Too short. By far."
    rows[1]["text"] = rows[1]["title"] + "\n" + TEXT
    run(write_articles(tmp_path / "articles", rows), tmp_path / "corpus")
    kept = dict(
        duckdb.sql(f"SELECT concept_id || language, text FROM '{tmp_path}/corpus/articles/*.parquet'").fetchall()
    )
    assert "Q0de" not in kept
    assert kept["Q0en"] == TEXT


def test_statistics_count_what_was_written(tmp_path):
    triples = run(write_articles(tmp_path / "articles", world()), tmp_path / "corpus")
    statistics = json.loads((tmp_path / "corpus" / "statistics.json").read_text())
    assert statistics["articles"] == {"de": 10, "en": 10, "fr": 5}
    assert sum(statistics["triples"].values()) == sum(statistics["triples_by_languages"].values()) == len(triples)


# Bad tables


def change(**fields: object) -> Callable[[list], None]:
    """Changes the third row; `...` removes a field."""

    def changed(rows: list) -> None:
        rows[2] = {name: value for name, value in {**rows[2], **fields}.items() if value is not ...}

    return changed


def replace(row: object) -> Callable[[list], None]:
    return lambda rows: rows.__setitem__(2, row)


BAD_ROWS = [
    *((change(**{name: ...}), f"has no {name}") for name in ARTICLE_COLUMNS),
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
    if suffix == ".parquet" and "has no" in message:  # a column is there for all rows or for none
        where, message = "", message.replace("has no", "has no column")
    with pytest.raises(ValueError, match=rf"fr\{suffix}{where}:? .*{message}"):
        copy_table(path, "fr", tmp_path / "copy.parquet")
    assert [file.name for file in tmp_path.glob("[!.]*")] == [path.name]


def write_table(path: Path, rows: list) -> Path | None:
    """JSON lines or Parquet; None where Parquet cannot hold these rows."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path
    try:
        names = [name for name in ARTICLE_COLUMNS if all(name in row for row in rows)]
        columns = {}
        for name in names:
            values = [row[name] for row in rows]
            whole = {type(value) for value in values} - {type(None)}
            columns[name] = pa.array(values if len(whole) < 2 else values[2:3] * len(rows))
        parquet.write_table(pa.table(columns), path)
    except (TypeError, pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    return path


BAD_FILES = [
    (b"", "has no row"),
    (b"\n \n", "has no row"),
    (b"[1]\n", r"line 1 is \[1\]; an article is a JSON object with concept_id, .*split"),
    (b"\n7\n", "line 2 is 7; an article is a JSON object"),
    (b"null\n", "line 1 is None"),
    (b"{not json}\n", "line 1 is not JSON"),
    (b'{"concept_id": "Q1"', "line 1 is not JSON"),
    (b"[" * 100_000, "line 1 is not JSON"),
    (b"\xff\xfe{\x00}\x00\n\x00", "line 1 is not UTF-8"),
    (json.dumps(article("Q0", "fr", ["river"])).encode("utf-16"), "line 1 is not UTF-8"),
    (json.dumps(article("Q0", "fr", ["river"])).replace("sentence", "\xe9").encode("latin-1"), "line 1 is not UTF-8"),
    (json.dumps([article("Q0", "fr", ["river"])], indent=1).encode(), "line 1 is not JSON"),
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
        "text not UTF-8": "row 1 is not UTF-8",
        "a column twice": "2 column text",
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


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row | {"split": "dev"} for row in world()], r"and \d+ for dev and test.*0 concepts of train have"),
        ([row | {"categories": []} for row in world()], "9 concepts of train .* 9 of them without any category"),
        ([row | {"concept_id": row["title"]} for row in world()], "0 concepts of train have articles in two"),
        ([row | {"categories": [row["concept_id"]]} for row in world()], "9 concepts of train .* 0 of them without"),
        ([row | {"text": "Short."} for row in world()], r"0 concepts of train.*de: \{.*'short': 10, 'kept': 0"),
    ],
)
def test_a_corpus_without_a_triple_to_train_on_is_an_error_that_says_why(tmp_path, rows, message):
    folder = write_articles(tmp_path / "articles", rows)
    for _ in range(2):  # the second run goes on from the steps of the first
        with pytest.raises(ValueError, match=f"no triple to train on.*{message}"):
            run(folder, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--languages", '["de", "a/b"]'], "languages has 'a/b'"),
        (["--languages", '["de"]'], "name at least two"),
        (["--category_limit", "0"], "category_limit is 0; it must be at least 1"),
        (["--num_triples", "0"], "num_triples is 0"),
        (["--threads", "0"], "threads is 0"),
        (["--min_sentences", "-1"], "min_sentences is -1"),
        (["--dev_fraction", "-0.1"], "dev_fraction is -0.1"),
        (["--dev_fraction", ".5", "--test_fraction", ".5"], "leave a part for training"),
        (["--num_triples", "9", "--pair_exponent", "1.5"], "pair_exponent is 1.5"),
        (["--memory_limit", "much"], "memory_limit is 'much'"),
        (["--maintenance_categories", '["("]'], r"maintenance_categories: '\(' is no pattern"),
    ],
)
def test_a_value_that_a_recipe_cannot_have_is_named_before_any_work(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        run(write_articles(tmp_path / "articles", world()), tmp_path / "corpus", *options)
    assert [file.name for file in tmp_path.glob("[!.]*")] == ["articles"]


# The output


def test_a_dataset_card_shows_sources_and_licences_as_the_text_they_are(tmp_path):
    source = "a](x) | <script>\n---\n# *b* `c` _d_ ![i](http://x) &amp; $e$ \\ {num_triples}"
    license_ = 'CC0-1.0"\nlicense: mit\n- [x'
    rows = [row | {"source": source, "license": license_} for row in world()]
    run(write_articles(tmp_path / "articles", rows), tmp_path / "corpus")
    _, metadata, body = (tmp_path / "corpus" / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(metadata)["license"] == "other"
    blocks = MarkdownIt("commonmark").enable("table").parse(body)
    shown = next(block for block in blocks if block.content.startswith("Sources and licences"))
    assert {part.type for part in shown.children} == {"text"}
    assert shown.children[0].content == (
        f"Sources and licences of the texts: {' '.join(source.split())}, {' '.join(license_.split())} (25)."
    )
    assert not any("html" in block.type for block in blocks)


def test_a_card_names_the_most_frequent_sources_and_counts_the_others(tmp_path):
    rows = [row | {"source": f"https://example.org/{row['title']}"} for row in world()]
    run(write_articles(tmp_path / "articles", rows), tmp_path / "corpus")
    assert (tmp_path / "corpus" / "README.md").read_text().count("https://example.org/") == 10
    assert "and 15 others, see statistics.json" in (tmp_path / "corpus" / "README.md").read_text()


def test_a_second_builder_of_one_output_is_told_so(tmp_path):
    folder = write_articles(tmp_path / "articles", world())
    program = "import sys, time; from common.files import locked\n"
    program += "with locked(sys.argv[1]): print('locked', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(tmp_path / "corpus")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(ValueError, match=r"another process is writing .*corpus; wait for it"):
            run(folder, tmp_path / "corpus")
        other.stdin.close()
    assert run(folder, tmp_path / "corpus")


def test_a_corpus_does_not_replace_the_articles_it_is_made_of(tmp_path):
    run(write_articles(tmp_path / "articles", world()), tmp_path / "corpus")
    with pytest.raises(ValueError, match=r"the articles are in .*corpus, which would be replaced"):
        run(tmp_path / "corpus" / "articles", tmp_path / "corpus")
    assert run(tmp_path / "corpus" / "articles", tmp_path / "again")


def test_a_folder_of_something_else_in_the_way_of_the_steps_is_not_removed(tmp_path):
    (tmp_path / "corpus.steps").mkdir()
    (tmp_path / "corpus.steps" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"corpus\.steps is no folder of this command"):
        run(write_articles(tmp_path / "articles", world()), tmp_path / "corpus")
    assert (tmp_path / "corpus.steps" / "thesis.txt").exists()


# Starts a run for each moment, a call that renames or removes something, in which it kills itself. Imports once.
KILLED = """
import os, signal, shutil, sys
from training.corpus import main
def run(moment):
    calls = [0]
    for name in ("replace", "unlink", "rmdir", "mkdir"):
        def counted(*args, call=getattr(os, name), **options):
            calls[0] += 1
            if calls[0] == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)
        setattr(os, name, counted)
    main([*sys.argv[2:], "--output", f"{sys.argv[1]}{moment}"])
    return calls[0]
def status(moment):
    shutil.copytree(f"{sys.argv[1]}-whole", f"{sys.argv[1]}{moment}")
    if os.fork() == 0:
        os._exit(run(moment))
    return os.waitstatus_to_exitcode(os.wait()[1])
count = status(0)
# The last 31 calls put the corpus in the place of the older one and remove the steps.
for moment in (count - 30, count - 29, count - 28, count - 20, count - 8):
    assert status(moment) == -signal.SIGKILL, moment
"""


def test_a_run_that_is_killed_while_it_replaces_a_corpus_leaves_one_that_can_be_run_again(tmp_path):
    options = ["--articles", str(write_articles(tmp_path / "articles", world())), "--languages", json.dumps(LANGUAGES)]
    main([*options, "--output", str(tmp_path / "corpus-whole")])
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "corpus"), *options], check=True, stdout=DEVNULL)
    outputs = {path.name.partition(".")[0] for path in tmp_path.glob("corpus*")}
    assert len(outputs) == 7
    for output in outputs:
        main([*options, "--output", str(tmp_path / output)])
        for path in ("triples.parquet", "articles/de.parquet", "articles/en.parquet", "articles/fr.parquet"):
            assert (tmp_path / output / path).read_bytes() == (tmp_path / "corpus-whole" / path).read_bytes()
    assert {path.name for path in tmp_path.glob("[!.]*")} == {"articles"} | outputs
    assert not list(tmp_path.glob("*.removed"))


@pytest.mark.parametrize("written", range(9))
def test_a_disk_that_is_full_at_any_file_says_so_and_the_next_run_goes_on(tmp_path, monkeypatch, written):
    """Files appear by renaming: of these, the one after `written` others fails."""
    folder = write_articles(tmp_path / "articles", world())
    rename, renamed = os.replace, []

    def full(*paths: object) -> None:
        if len(renamed) == written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        renamed.append(paths)
        rename(*paths)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=r"the disk of .*corpus is full .*it goes on from the last finished step"):
        run(folder, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()
    assert not list(tmp_path.rglob("*.partial*"))
    monkeypatch.undo()
    assert run(folder, tmp_path / "corpus")
    assert {path.name for path in tmp_path.glob("[!.]*")} == {"articles", "corpus"}


def test_a_memory_limit_that_is_too_low_is_named_and_the_next_run_goes_on(tmp_path):
    folder = write_articles(tmp_path / "articles", world())
    with pytest.raises(ValueError, match=r"memory_limit is too low .*; raise it and run the command again"):
        run(folder, tmp_path / "corpus", "--memory_limit", "1KB")
    assert run(folder, tmp_path / "corpus")


def test_steps_of_other_content_are_not_taken_up_though_size_and_time_are_the_same(tmp_path, monkeypatch):
    folder = write_articles(tmp_path / "articles", world())
    monkeypatch.setattr("training.corpus.build.write_corpus", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(folder, tmp_path / "corpus")
    monkeypatch.undo()
    for path in folder.iterdir():
        times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
        path.write_text(path.read_text().replace("river", "ocean"))
        os.utime(path, ns=times)
    assert {row["category"] for row in run(folder, tmp_path / "corpus")} == {"ocean", "city", "place"}


def test_steps_of_other_code_are_not_taken_up(tmp_path, monkeypatch):
    folder = write_articles(tmp_path / "articles", world())
    monkeypatch.setattr("training.corpus.build.write_corpus", lambda *_: 1 / 0)
    for code, steps in (("one", 1), ("one", 0), ("other", 1)):
        drawn = []
        monkeypatch.setattr("training.corpus.steps.fingerprint_of_folder", lambda *_, code=code: code)
        monkeypatch.setattr(
            "training.corpus.build.draw_triples",
            lambda *args, drawn=drawn, **options: (drawn.append(args), draw_triples(*args, **options)),
        )
        with pytest.raises(ZeroDivisionError):
            run(folder, tmp_path / "corpus")
        assert len(drawn) == steps


@pytest.mark.parametrize("terminal", [True, False])
def test_a_step_that_takes_long_shows_its_name_on_a_terminal_only(monkeypatch, terminal):
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    stream = Stream()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("training.corpus.progress.SECONDS", 0.0)
    with duckdb.connect() as connection, progress(connection, "articles of de"):
        time.sleep(0.1)
        names = ("enable_progress_bar", "enable_progress_bar_print")
        counts, prints = (connection.execute(f"SELECT current_setting('{name}')").fetchall()[0][0] for name in names)
        assert not (counts and prints), "DuckDB's own bar would stand among the statistics on stdout"
        assert counts == terminal
    assert ("articles of de" in stream.getvalue()) == terminal


def test_a_folder_of_something_else_is_not_replaced(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="holds no corpus"):
        run(write_articles(tmp_path / "articles", world()), tmp_path / "corpus")
    assert (tmp_path / "corpus" / "thesis.txt").exists()
