"""What README.md and MODEL_CARD.md tell people to run, runs.

Each Python block is a program of its own, started in a new process in an empty folder, in which tiny models stand under
the names that the blocks use. A relative path and a name on the Hub look alike to transformers, which takes the folder
where there is one: so `from_pretrained("intfloat/multilingual-e5-small")` runs too, once that name stands in MODELS.
What a block pushes goes to a stand-in of the Hub.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub_stand_in import Hub, running_hub

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from training import export

REPOSITORY = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [
    (f"{page}, line {text[: found.start()].count(chr(10)) + 1}", found[1], found[2])
    for page in ("README.md", "MODEL_CARD.md")
    for text in [(REPOSITORY / page).read_text(encoding="utf-8")]
    for found in FENCE.finditer(text)
]
PYTHON = [pytest.param(code, id=place) for place, language, code in BLOCKS if language == "python"]
BASH = [pytest.param(code, id=place) for place, language, code in BLOCKS if language == "bash"]

# The names by which the blocks call a model, and what stands there.
MODELS = {"runs/hmde-sample": "hmde", "runs/e5-small": "sentence encoder"}


@pytest.fixture(scope="module")
def models(
    xlmr: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    hmde = tmp_path_factory.mktemp("models") / "hmde"
    make_model(xlmr).save_pretrained(hmde)
    HMDETokenizer.from_sentence_encoder(str(xlmr)).save_pretrained(hmde)
    export.main(["--model", str(hmde)])
    return {"hmde": hmde, "sentence encoder": xlmr}


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with running_hub() as hub:
        yield hub


@pytest.mark.parametrize("code", PYTHON)
def test_a_python_block_runs_from_a_fresh_process(code: str, tmp_path: Path, models: dict[str, Path], hub: Hub) -> None:
    folder = tmp_path / "work"
    for name, kind in MODELS.items():
        shutil.copytree(models[kind], folder / name)
    environment = os.environ | {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": str(int("push_to_hub" not in code)),
        "HF_TOKEN": "hf_stand_in",
        "HF_MODULES_CACHE": str(tmp_path / "modules"),
        "PYTHONPATH": str(REPOSITORY),
    }
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr[-2000:]


@pytest.mark.parametrize("code", BASH)
def test_a_bash_block_names_files_and_modules_that_are_there(code: str) -> None:
    for file in re.findall(r"(?:--config |launch |python )([\w./-]+\.(?:ya?ml|py))", code):
        assert (REPOSITORY / file).is_file(), file
    for module in re.findall(r"python -m ([\w.]+)", code):
        path = REPOSITORY / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
    for target in re.findall(r"^make (\w+)", code, re.MULTILINE):
        assert re.search(rf"^{target}:", (REPOSITORY / "Makefile").read_text(), re.MULTILINE), target


def test_every_block_says_what_it_is_and_python_is_spelt_so() -> None:
    """A block marked otherwise ("py", "Python") would run nowhere, unnoticed."""
    assert {language for _, language, _ in BLOCKS} <= {"python", "bash", "bibtex", "yaml", "text", ""}
    assert PYTHON
    assert BASH
