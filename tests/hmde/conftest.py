"""A tiny model, and an index that it made."""

from __future__ import annotations

from pathlib import Path

import pytest

from hmde.index.encoder import Encoder
from hmde.index.update import update_index
from tests.hmde.small_index import TEXTS, CountingEncoder, documents_of


@pytest.fixture(scope="module")
def encoder(model_folder: Path) -> Encoder:
    return Encoder.load(str(model_folder), "float32")


@pytest.fixture
def counting(encoder: Encoder) -> CountingEncoder:
    counting = CountingEncoder(*encoder)
    counting.encoded = []
    return counting


@pytest.fixture
def index_folder(tmp_path: Path, encoder: Encoder) -> Path:
    """An index of TEXTS that keeps sentences."""
    update_index(tmp_path / "index", documents_of(TEXTS), encoder, sentences=True)
    return tmp_path / "index"
