"""The comparison of int8 with other formats. Its times are not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks import int8
from benchmarks.int8 import Int8Benchmark, load, main, onnx_product


def test_every_linear_layer_of_the_sentence_encoder_is_replaced_and_no_other(labse: Path) -> None:
    model = load("torch", str(labse)).model
    assert not [module for module in model.hmde.sentence_encoder.modules() if type(module) is nn.Linear]
    assert sum(isinstance(module, nn.Linear) for module in load("float32", str(labse)).model.modules()) > 12
    assert any(isinstance(module, nn.Linear) for module in model.hmde.document_encoder.modules())


def test_it_writes_speed_nearness_and_retrieval_of_each_method(
    labse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8, "TOKENS", 32)
    documents = {"d1": "The cat sat on the mat.", "d2": "Le chat dort.", "d3": "Der Hund sah die Katze."}
    for folder in ("docs", "queries", "articles"):
        (tmp_path / folder).mkdir()
    rows = [{"doc_id": doc_id, "text": text} for doc_id, text in documents.items()]
    (tmp_path / "docs" / "de.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "articles" / "de.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "queries" / "en.tsv").write_text("q1\tThe cat\nq2\tdas ist der Hund\n")
    (tmp_path / "qrels.tsv").write_text("q1\t0\td1\t1\nq2\t0\td3\t1\n")
    options = {"documents": tmp_path / "articles", "data": tmp_path, "encoder": labse, "output": tmp_path / "out"}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    threads = torch.get_num_threads()
    main([*arguments, "--methods=[float32, bfloat16, torch]", "--num_documents=3", "--rounds=2", "--max_queries=1"])
    torch.set_num_threads(threads)
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    rows = {row["method"]: row for row in content["rows"]}
    assert {name: len(seconds) for name, seconds in content["seconds"].items()} == dict.fromkeys(rows, 2)
    assert list(rows) == ["float32", "bfloat16", "torch"]
    assert rows["float32"]["times float32"] == 1
    assert all(row["lowest cosine with float32"] > 0.95 for row in rows.values())
    assert rows["torch"]["lowest cosine with float32"] < 1 - 1e-6
    assert all(row["MAP"] in (1, 0.5, pytest.approx(1 / 3)) for row in rows.values())
    table = (tmp_path / "out" / "results.md").read_text()
    assert "| 384 x 1536 |" in table
    assert "| torch |" in table


def test_documents_come_with_a_retrieval_set() -> None:
    with pytest.raises(ValueError, match="documents and data belong together"):
        Int8Benchmark(documents="articles")


def test_onnx_runtime_multiplies_what_it_is_given() -> None:
    states, weights = torch.randn(2, 9, 5, generator=torch.Generator().manual_seed(0))
    (product,) = onnx_product(states.numpy(), weights.T.numpy())()
    assert product == pytest.approx((states @ weights.T).numpy(), abs=0.1)
