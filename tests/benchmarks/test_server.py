"""The load on the server is what it is asked to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import server as server_benchmark
from hmde import Document, Index
from hmde.server.app import make_app
from tests.hmde.server.running_server import running

pytestmark = pytest.mark.lancedb


@pytest.fixture
def index(model_folder: Path, tmp_path: Path) -> Index:
    index = Index(tmp_path / "index", str(model_folder), dtype="float32")
    pages = {"a.pdf#page=1": "The cat sat on the mat.", "a.pdf#page=2": "It was warm.", "b.html": "Der Hund schlief."}
    index.add([Document(name, name, None, text) for name, text in pages.items()])
    return index


def test_clients_share_the_requests_and_each_answer_is_timed(index: Index) -> None:
    with running(make_app(index)) as address:
        load = server_benchmark.load(address, clients=3, requests=10)
    assert len(load.seconds) == 10
    assert load.rate > 0
    assert sum(load.seconds) / 3 <= 10 / load.rate
