"""`hmde`: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hmde.__main__ import main
from hmde.common.command_line import run
from tests.hmde.small_index import TEXTS

pytestmark = pytest.mark.lancedb


def test_the_terminal_indexes_and_answers_in_words_and_in_json(
    tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents, index = str(tmp_path / "documents"), str(tmp_path / "index #1 %20 ключ")
    (tmp_path / "documents").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "documents" / f"{name}.txt").write_text(text, encoding="utf-8")
    main(["index", documents, index, "--model", str(model_folder), "--dtype", "float32"])
    assert capsys.readouterr().out == "4 added, 0 changed, 0 removed, 0 unchanged\n"
    main(["index", documents, index, "--json", "true", "--dtype", "float32"])
    counts = {"added": 0, "changed": 0, "removed": 0, "unchanged": 4, "truncated": 0}
    assert json.loads(capsys.readouterr().out) == counts | {"unreadable": {}, "notes": {}, "left_out": {}}
    main(["query", index, "The cat", "--hits", "2", "--sentences", "1", "--json", "true", "--text", "true"])
    hits = json.loads(capsys.readouterr().out)
    assert len(hits) == 2
    for hit in hits:
        (sentence,) = hit["sentences"]
        assert hit["text"][sentence["begin"] : sentence["end"]] == sentence["text"] != ""
    main(["query", index, "The cat", "--hits", "2", "--sentences", "1", "--dtype", "float32"])
    words = capsys.readouterr().out
    for hit in hits:
        assert hit["id"] in words
        assert hit["sentences"][0]["text"] in words
    for ranking, count in (("late", 4), ("hybrid", 4), ("bm25", 1)):
        main(["query", index, "chat", "--ranking", ranking, "--json", "true", "--dtype", "float32"])
        assert len(json.loads(capsys.readouterr().out)) == count


def test_help_names_the_command_as_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["query", "--help"])
    assert capsys.readouterr().out.startswith("usage: hmde [options] query ")


def test_a_question_may_be_of_some_languages_and_hits_show_their_metadata(
    tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": name, "text": "The cat sat.", "language": name, "year": 1900} for name in ("de", "en", "fr", "ru")]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    index = str(tmp_path / "index")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    main(["index", str(tmp_path / "a.jsonl"), index, "--model", str(model_folder), "--columns.metadata", "[year]"])
    assert "4/4" in capsys.readouterr().err, "progress is shown on a terminal"
    main(["query", index, "The cat", "--languages", "de, fr", "--json", "true"])
    assert {hit["language"] for hit in json.loads(capsys.readouterr().out)} == {"de", "fr"}
    main(["query", index, "The cat", "--languages", "ru"])
    assert "year 1900" in capsys.readouterr().out


def test_the_language_and_the_columns_of_an_index_are_remembered(
    tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"body": "The cat sat.", "year": 1900}))
    arguments = ["index", str(tmp_path / "a.jsonl"), str(tmp_path / "index"), "--dtype", "float32"]
    columns = ["--columns.text", "body", "--columns.metadata", "[year]"]
    main([*arguments, "--model", str(model_folder), "--language", "de", *columns])
    assert capsys.readouterr().out == "1 added, 0 changed, 0 removed, 0 unchanged\n"
    main(arguments)
    printed = capsys.readouterr()
    assert printed.out == "0 added, 0 changed, 0 removed, 1 unchanged\n"
    assert "language de, Columns(text='body'" in printed.err
    main([*arguments, "--language", "fr"])
    main(["query", str(tmp_path / "index"), "The cat", "--json", "true"])
    assert '"language": "fr"' in capsys.readouterr().out


def test_an_index_is_made_of_embeddings_that_were_made_before(
    tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": 1, "text": "The cat sat."}))
    main(["encode", str(tmp_path / "a.jsonl"), str(tmp_path / "embeddings"), "--model", str(model_folder)])
    arguments = ["index", str(tmp_path / "a.jsonl"), str(tmp_path / "index"), "--model", str(model_folder)]
    monkeypatch.setattr("hmde.index.encoder.Encoder.encode", None)  # so that to encode would be an error
    main([*arguments, "--embeddings", str(tmp_path / "embeddings")])
    assert "1 added" in capsys.readouterr().out


def test_nothing_in_a_document_commands_the_terminal(
    tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = "cat \x1b[2J\x1b]52;c;aGk=\x07 \x9b2J\x08\r\x7f sat"
    (tmp_path / "a.jsonl").write_text(
        json.dumps({"id": f"id {evil}", "title": f"title {evil}", "text": evil, "note": evil})
    )
    index = str(tmp_path / "index")
    options = ["--columns.metadata", "[note]", "--dtype", "float32"]
    main(["index", str(tmp_path / "a.jsonl"), index, "--model", str(model_folder), *options])
    main(["query", index, "cat"])
    main(["query", index, "cat", "--json", "true", "--text", "true", "--where", "note LIKE 'cat%'"])
    printed = capsys.readouterr().out
    assert not {character for character in printed if not character.isprintable()} - {"\n"}
    (hit,) = json.loads(printed[printed.index("[\n") :])
    assert (hit["text"], hit["metadata"]) == (f"title {evil}\n{evil}", {"note": evil})
    main(["query", index, "cat", "--json", "true", "--where", "note = 'dog'"])
    assert json.loads(capsys.readouterr().out) == []
    (tmp_path / "b\x1b[2J.jsonl").write_text("{")
    monkeypatch.setattr("sys.argv", ["hmde", "index", str(tmp_path / "b\x1b[2J.jsonl"), index, "--dtype", "float32"])
    with pytest.raises(SystemExit):
        run(main)
    assert "b\\x1b[2J.jsonl, line 1: is no JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["query", "nowhere", "The cat"], "holds no index"),
        (["index", "nowhere", "index", "--model", "{model}"], "nowhere is missing"),
        (["index", "documents", "documents/index", "--model", "{model}"], "would be read as documents"),
        (["index", "documents", "index", "--model", "nowhere"], "nowhere does not open, as a folder"),
        (["query", "nowhere", "The cat", "--hits", "0"], "does not conform to restriction v>0"),
        (["query", "nowhere", "The cat", "--top", "1"], "unrecognized arguments: --top 1"),
        (["query", "nowhere", "The cat", "--ranking", "best"], "Given value: best"),
        (["query", "nowhere"], "required: query.question"),
        (["index", "documents", "file", "--model", "{model}"], "Not a directory"),
        (["serve", "nowhere", "--port", "70000"], "no server can listen at 127.0.0.1, port 70000"),
    ],
)
def test_the_terminal_says_in_a_line_what_is_wrong_and_the_way_out(
    tmp_path: Path,
    model_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "cat.txt").write_text(TEXTS["cat"], encoding="utf-8")
    (tmp_path / "file").touch()
    monkeypatch.setattr("sys.argv", ["hmde", *(argument.format(model=model_folder) for argument in arguments)])
    with pytest.raises(SystemExit) as stopped:
        run(main)
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_a_slow_answer_names_the_way_to_faster_ones(
    index_folder: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for limit, said in ((3600.0, 0), (0.0, 1)):
        monkeypatch.setattr("hmde.commands.query.SLOW", limit)
        main(["query", str(index_folder), "The cat", "--json", "true"])
        assert caplog.text.count(f"`hmde serve {index_folder}` answers sooner") == said
