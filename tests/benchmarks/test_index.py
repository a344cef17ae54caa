"""The benchmark of the index, on few documents."""

from __future__ import annotations

from pathlib import Path

import pytest

import hmde.index.update
from benchmarks import index as benchmark
from hmde.index.ranking import rank
from hmde.index.snapshot import open_snapshot

pytestmark = pytest.mark.lancedb


def test_the_benchmark_makes_an_index_of_random_vectors_and_queries_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hmde.index.update, "APPROXIMATE_FROM", hmde.index.update.APPROXIMATE_FROM)  # which `make` sets
    assert benchmark.make(tmp_path, documents=100, sentences=2).startswith("making")
    assert benchmark.update(tmp_path, documents=100, sentences=2).startswith(f"adding {benchmark.BLOCK} ")
    assert len(open_snapshot(tmp_path)) == 100 + benchmark.BLOCK
    for ranking in benchmark.RANKINGS:
        assert benchmark.query(tmp_path, ranking, None, queries=2).startswith(ranking)
    assert benchmark.query(tmp_path, "dense", ["de"], queries=2).startswith("dense de ")


def test_fewer_documents_than_recall_needs_are_refused() -> None:
    with pytest.raises(ValueError, match="documents is 99; make it 100 at least"):
        benchmark.main(["--documents=99"])


def test_the_benchmark_counts_how_many_of_the_nearest_documents_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hmde.index.update, "APPROXIMATE_FROM", hmde.index.update.APPROXIMATE_FROM)  # which `make` sets
    benchmark.make(tmp_path, documents=3000, sentences=0)
    for languages in (None, ["de"]):
        assert "1.000 of the 10 nearest" in benchmark.recall(tmp_path, "dense", languages, queries=4)
    monkeypatch.setattr(benchmark, "rank", lambda *asked, **named: dict(list(rank(*asked, **named).items())[:7]))
    assert "0.700 of the 10 nearest" in benchmark.recall(tmp_path, "dense", None, queries=4)
