"""The benchmark of encoding: what it reads, and the tables it writes. Its times are not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.encode import EncodeBenchmark, Trial, draw, main, tables_of
from hmde.documents.documents import Document

TEXTS = {
    "en": "The cat sat on the mat. It was warm there! Did the dog see it?",
    "de": "Der Hund sah die Katze. Sie lag in der Sonne.\nDann schlief auch er ein.",
}


def test_documents_are_drawn_by_their_length_and_cut_to_their_first_sentences() -> None:
    documents = [Document("", "", "en", "Cat. " * count) for count in range(1, 41)]
    benchmark = EncodeBenchmark(documents="", systems={}, output="", num_documents=5, max_sentences=4)
    short, long = (draw(documents, length, benchmark) for length in ("short", "long"))
    assert max(len(document.text) for document in short) <= len("Cat. " * 10)
    assert {document.text for document in long} == {"Cat. Cat. Cat. Cat."}
    benchmark.num_documents = 11
    with pytest.raises(ValueError, match="num_documents is 11, but only 10 are short"):
        draw(documents, "short", benchmark)


def test_numbers_are_medians_and_ratios_those_within_a_round() -> None:
    first = [Trial(1.0, 2.0, 5.0), Trial(2.0, 2.0, 5.0), Trial(4.0, 2.0, 5.0)]
    other = [Trial(3.0, 4.0, 7.0), Trial(2.0, 4.0, 7.0), Trial(8.0, 4.0, 7.0)]
    tables = tables_of({"mixed": {"first": first, "other": other}}, num_documents=12, dtype="torch.bfloat16")
    assert [table.scores for table in tables] == [
        {"first": {"mixed": 6.0}, "other": {"mixed": 4.0}},
        {"first": {"mixed": 1.0}, "other": {"mixed": 2.0}},
        {"first": {"mixed": pytest.approx(500 / 3)}, "other": {"mixed": pytest.approx(1000 / 3)}},
        {"first": {"mixed": 5.0}, "other": {"mixed": 7.0}},
    ]


def test_it_writes_its_tables(labse: Path, tmp_path: Path) -> None:
    for language, text in TEXTS.items():
        rows = [json.dumps({"text": f"{text}\nA line that is long enough, {index}"}) for index in range(8)]
        (tmp_path / f"{language}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    system = {"model": str(labse), "pooling": "mean"}
    systems = {kind: system | {"kind": kind} for kind in ("sentences", "windows")}
    output = tmp_path / "out"
    options = {"documents": tmp_path, "output": output, "num_documents": 4, "rounds": 2, "dtype": "float32"}
    main([*(f"--{name}={value}" for name, value in options.items()), f"--systems={json.dumps(systems)}"])
    trials = json.loads((output / "results.json").read_text(encoding="utf-8"))["trials"]
    assert {length: {*by_system} for length, by_system in trials.items()} == {
        length: {"sentences", "windows"} for length in ("short", "mixed", "long")
    }
    assert all(len(own) == 2 for by_system in trials.values() for own in by_system.values())
    assert "Documents a second, float32" in (output / "results.md").read_text(encoding="utf-8")


def test_a_kind_without_a_vector_of_each_document_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="kind"):
        main([f"--documents={tmp_path}", f"--output={tmp_path / 'out'}", '--systems={"bm25": {"kind": "bm25"}}'])
