"""The benchmark of one's own files, on an index of a few documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.files import main
from search.encoder import Encoder
from search.update import update_index
from tests.search.small_index import TEXTS, documents_of

pytestmark = pytest.mark.lancedb


def test_no_more_documents_are_asked_for_than_wanted(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    update_index(tmp_path, documents_of(TEXTS), Encoder.load(str(model_folder)), sentences=True)
    main([f"--index={tmp_path}", "--most=3"])
    (asked,) = [line.split(" | ")[3] for line in capsys.readouterr().out.splitlines()[2:] if line]
    assert asked == "2"  # of four documents, every second


def test_an_index_without_sentences_is_refused(model_folder: Path, tmp_path: Path) -> None:
    update_index(tmp_path, documents_of(TEXTS), Encoder.load(str(model_folder)), sentences=False)
    with pytest.raises(ValueError, match=f"index {tmp_path} keeps no sentences; make it anew with --sentences true"):
        main([f"--index={tmp_path}"])
