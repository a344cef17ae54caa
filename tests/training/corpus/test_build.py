"""Triples from local article tables: what is written, what is refused, and what survives an interruption."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import duckdb
import pytest

from tests.training.corpus.own_articles import LANGUAGES, TEXT, run, world, write_articles
from training.corpus import main
from training.corpus.hard_negatives import draw_triples


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


def test_lines_of_documents_make_triples_of_their_own(tmp_path):
    def lines(language: str, *numbers: int) -> str:
        """Heading, lines that name their number, and one that is there twice; 5 sentences at least."""
        described = [f"In {language}, line {number} of this document says something long." for number in numbers]
        return "\n".join(["A heading", *described, "This long line is there twice, word for word.\n" * 2])

    texts = {
        ("Q0", "de"): lines("German", *range(20)),
        ("Q0", "en"): lines("English", *range(20)),
        ("Q0", "fr"): lines("French", *range(19)),  # no translation line by line
        ("Q2", "de"): lines("German", *range(4)),
        ("Q2", "en"): lines("English", *range(4)),
    }
    rows = [row | {"text": texts.get((row["concept_id"], row["language"]), TEXT)} for row in world()]
    articles = write_articles(tmp_path / "articles", rows)
    documents = run(articles, tmp_path / "documents")
    triples = run(articles, tmp_path / "corpus", "--sentences_per_document", "12")
    sentences = [triple for triple in triples if "#" in triple["concept_id"]]
    assert [triple for triple in triples if triple not in sentences] == documents

    tables = duckdb.sql(f"SELECT concept_id, language, text, split FROM '{tmp_path}/corpus/articles/*.parquet'")
    written = {(concept, language): (text, split) for concept, language, text, split in tables.fetchall()}
    by_document: dict[str, list[str]] = {"Q0": [], "Q2": []}
    for triple in sentences:
        document, place = triple["concept_id"].split("#")
        by_document[document].append(place)
        assert {triple["anchor_language"], triple["positive_language"]} == {"de", "en"}
        assert triple["negative_id"].startswith(f"{document}#")
        assert triple["negative_id"] != triple["concept_id"]
        (german, split), (english, _) = (written[triple["concept_id"], language] for language in ("de", "en"))
        assert split == triple["split"] == "train"
        assert german.replace("German", "English") == english  # the line at the same place
        assert german in texts[document, "de"].split("\n")
    assert 8 <= len(by_document["Q0"]) <= 12  # of 12 drawn places, 3 may be the heading or the line that is there twice
    assert len(set(by_document["Q0"])) == len(by_document["Q0"])
    assert len(by_document["Q2"]) == 4  # all there are


def test_a_blank_line_makes_no_document(tmp_path):
    blanks = [character * 50 for character in (" ", "\u00a0", "\u2003", "\u200b", "\u00ad")]
    text = "\n".join(["This line has something to see, and it is long enough.", *blanks, "\u00a0" * 40 + "Seen.", TEXT])
    rows = [row | {"text": text} for row in world()]
    run(write_articles(tmp_path / "articles", rows), tmp_path / "corpus", "--sentences_per_document", "8")
    tables = f"SELECT text FROM '{tmp_path}/corpus/articles/*.parquet' WHERE concept_id LIKE '%#%'"
    lines = {line for (line,) in duckdb.sql(tables).fetchall()}
    assert lines == {line for line in text.split("\n") if line not in blanks}


def test_statistics_count_what_was_written(tmp_path):
    triples = run(write_articles(tmp_path / "articles", world()), tmp_path / "corpus")
    statistics = json.loads((tmp_path / "corpus" / "statistics.json").read_text())
    assert statistics["articles"] == {"de": 10, "en": 10, "fr": 5}
    assert sum(statistics["triples"].values()) == sum(statistics["triples_by_languages"].values()) == len(triples)


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
        (["--languages", '["de", "a/b"]'], r"has no a/b\.parquet and no a/b\.jsonl"),
        (["--languages", '["de"]'], "name at least two"),
        (["--category_limit", "0"], r"(?s)category_limit.*v>0"),
        (["--num_triples", "0"], r"(?s)num_triples.*v>0"),
        (["--seed", "-1"], r"(?s)seed.*v>=0"),
        (["--threads", "0"], r"(?s)threads.*v>0"),
        (["--min_sentences", "-1"], r"(?s)min_sentences.*v>0"),
        (["--dev_fraction", "-0.1"], r"(?s)dev_fraction.*v>=0 and v<1"),
        (["--num_triples", "9", "--pair_exponent", "1.5"], r"(?s)pair_exponent.*v>=0 and v<=1"),
        (["--memory_limit", "much"], "memory_limit is 'much'"),
    ],
)
def test_a_value_that_a_recipe_cannot_have_is_named_before_any_work(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        run(write_articles(tmp_path / "articles", world()), tmp_path / "corpus", *options)
    assert [file.name for file in tmp_path.glob("[!.]*")] == ["articles"]


@pytest.mark.slow
def test_a_second_builder_of_one_output_is_told_so(tmp_path):
    folder = write_articles(tmp_path / "articles", world())
    program = "import sys, time; from hmde.common.files import locked\n"
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


# Starts a run for each moment, a call that renames or removes something, in which it kills itself.
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


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_replaces_a_corpus_leaves_one_that_can_be_run_again(
    tmp_path, run_in_a_fresh_process
):
    options = ["--articles", str(write_articles(tmp_path / "articles", world())), "--languages", json.dumps(LANGUAGES)]
    main([*options, "--output", str(tmp_path / "corpus-whole")])
    run_in_a_fresh_process(KILLED, str(tmp_path / "corpus"), *options, folder=tmp_path)
    outputs = {path.name.partition(".")[0] for path in tmp_path.glob("corpus*")}
    assert len(outputs) == 7
    for output in outputs:
        main([*options, "--output", str(tmp_path / output)])
        for path in ("triples.parquet", "articles/de.parquet", "articles/en.parquet", "articles/fr.parquet"):
            assert (tmp_path / output / path).read_bytes() == (tmp_path / "corpus-whole" / path).read_bytes()
    assert {path.name for path in tmp_path.glob("[!.]*")} == {"articles"} | outputs
    assert not list(tmp_path.glob("*.removed"))


def test_threads_do_not_change_a_byte_and_a_seed_does(tmp_path):
    folder = write_articles(tmp_path / "articles", world())
    runs = {"one": ["--threads", "1"], "four": ["--threads", "4", "--memory_limit", "200MB"], "other": ["--seed", "7"]}
    for name, options in runs.items():
        run(folder, tmp_path / name, *options)
    one, four, other = ((tmp_path / name / "triples.parquet").read_bytes() for name in runs)
    assert one == four != other


def test_a_concept_in_two_splits_is_named(tmp_path):
    rows = [row | {"split": "dev"} if (row["concept_id"], row["language"]) == ("Q1", "en") else row for row in world()]
    with pytest.raises(ValueError, match="Q1 is in the splits train in de, dev in en"):
        run(write_articles(tmp_path / "articles", rows), tmp_path / "corpus")


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
    with pytest.raises(OSError, match=r"the disk of .*corpus is full .*it continues after the last finished step"):
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


def test_a_folder_of_something_else_is_not_replaced(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="holds no corpus"):
        run(write_articles(tmp_path / "articles", world()), tmp_path / "corpus")
    assert (tmp_path / "corpus" / "thesis.txt").exists()
