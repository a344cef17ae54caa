"""The benchmark of recipes: what it trains, keeps and compares."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from accelerate.state import AcceleratorState

from benchmarks import choices
from evaluation.systems.hmde import HMDESystem
from tests.pretraining import options, write_corpus
from training import pretrain


def test_kept_sentences_make_the_vectors_that_documents_have_and_are_encoded_once(
    model, tokenizer, documents, monkeypatch
):
    kept: choices.KeptSentences = {}
    texts = [*documents, documents[0]]
    expected = HMDESystem(model, tokenizer).encode_documents(texts, "en")
    found = choices.SystemFromKeptSentences(model, tokenizer, kept=kept).encode_documents(texts, "en")
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert len(kept) == len(documents)
    monkeypatch.setattr(type(model.hmde), "encode_sentences", None)  # would fail if called
    again = choices.SystemFromKeptSentences(model, tokenizer, kept=kept).encode_documents(documents[1:], "en")
    np.testing.assert_allclose(again, expected[1:-1], atol=1e-5)


@pytest.fixture
def titles(tmp_path: Path) -> Path:
    """Titles in English, which are found in German."""
    (tmp_path / "titles" / "docs").mkdir(parents=True)
    (tmp_path / "titles" / "queries").mkdir()
    lines = [json.dumps({"doc_id": f"d{number}", "text": f"Die Katze {number} ist warm."}) for number in range(4)]
    (tmp_path / "titles" / "docs" / "de.jsonl").write_text("\n".join(lines))
    queries = "".join(f"q{number}\tcat {number}\n" for number in range(4))
    (tmp_path / "titles" / "queries" / "en.tsv").write_text(queries)
    (tmp_path / "titles" / "qrels.tsv").write_text("".join(f"q{number}\t0\td{number}\t1\n" for number in range(4)))
    return tmp_path / "titles"


def test_every_choice_is_trained_once_a_seed_and_compared_by_its_last_weights(
    labse: Path, titles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "data").mkdir()
    corpus = write_corpus(tmp_path / "data")
    recipe = tmp_path / "recipe.yaml"
    given = options(corpus, labse, tmp_path / "unused", freeze="sentence_encoder", max_steps=2, learning_rate=0.01)
    recipe.write_text("".join(f"{name.removeprefix('--')}: {value}\n" for name, value in zip(given[::2], given[1::2])))
    trained = []

    def run(command: list, check: bool) -> None:
        """In this process, where a test need not load everything anew."""
        trained.append(command[command.index("--output") + 1])
        pretrain.main([str(part) for part in command[2:]])
        AcceleratorState._reset_state(reset_partial_state=True)

    monkeypatch.setattr(subprocess, "run", run)
    benchmark = tmp_path / "choices.yaml"
    content = {
        "recipe": str(recipe),
        "corpus": str(corpus),
        "sentence_encoder": str(labse),
        "output": str(tmp_path / "choices"),
        "baselines": {"mean": {"kind": "sentences", "model": str(labse), "pooling": "cls"}},
        "choices": {"as-it-is": {}, "colder": {"architecture.temperature": 0.01}},
        "retrieval": {"titles": {"data": str(titles), "pairs": ["en-de"], "measure": "MRR"}},
        "seeds": [1, 2],
    }
    benchmark.write_text(json.dumps(content))
    choices.main(["--config", str(benchmark)])
    assert [name.rpartition("-")[0] for name in trained] == [
        f"{tmp_path}/choices/{name}" for name in ("as-it-is-1", "colder-1", "as-it-is-2", "colder-2")
    ]
    expected = list(trained)
    results = [json.loads(line) for line in (tmp_path / "choices" / "results.jsonl").read_text().splitlines()]
    assert [(found["name"], found["seed"]) for found in results] == [
        ("mean", None), ("as-it-is", 1), ("colder", 1), ("as-it-is", 2), ("colder", 2),
    ]  # fmt: skip
    assert all(0 < found["scores"]["titles, MRR"] <= 1 for found in results)
    temperature = json.loads((Path(trained[1]) / "config.json").read_text())["temperature"]
    assert temperature == 0.01
    assert "as-it-is (2)" in (tmp_path / "choices" / "results.md").read_text()

    choices.main(["--config", str(benchmark)])
    assert trained == expected, "what is there was trained again"

    content["choices"]["colder"] = {"architecture.temperature": 0.02}
    content["seeds"] = [1]
    benchmark.write_text(json.dumps(content))
    choices.main(["--config", str(benchmark)])
    assert [name.rpartition("-")[0] for name in trained[4:]] == [f"{tmp_path}/choices/colder-1"]
    results = json.loads((tmp_path / "choices" / "results.json").read_text())["results"]
    assert [(found["name"], found["seed"]) for found in results] == [("mean", None), ("as-it-is", 1), ("colder", 1)]

    content["retrieval"]["titles"]["pairs"] = ["en-de", "en-all"]
    benchmark.write_text(json.dumps(content))
    choices.main(["--config", str(benchmark)])
    assert len(trained) == 5
    results = json.loads((tmp_path / "choices" / "results.json").read_text())["results"]
    assert all("titles, MRR, pool of all languages" in found["scores"] for found in results)


def test_a_baseline_that_makes_no_document_vector_of_sentences_is_refused() -> None:
    given = ["--recipe=r", "--corpus=c", "--sentence_encoder=s", "--choices={}", "--retrieval={}", "--output=o"]
    with pytest.raises(ValueError, match=r"(?s)passages.*Got value: bm25"):
        choices.main([*given, "--baselines={words: {kind: bm25}}"])
