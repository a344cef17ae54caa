"""The sections of docs/integrations.md, each a library, and the examples find what the model itself finds.

A section is a program that ends with `found`. It runs in a process of its own where its library is installed. All run a
second time, as users have them: in a new virtual environment in which nothing is installed but what the section asks
for, out of reach of this repository. That installs much and so waits for `make integrations`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hmde.commands.encode import main as encode
from hmde.commands.options import EncodeOptions
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.paths import REPOSITORY

pytestmark = pytest.mark.slow

EXAMPLES = REPOSITORY / "examples"
INTEGRATIONS = REPOSITORY / "tests" / "integrations"
NEEDS = {
    "ONNX Runtime": "onnxruntime",
    "LangChain": "langchain_huggingface",
    "LangChain, by an index": "langchain_core",
    "LlamaIndex": "llama_index.embeddings.huggingface",
    "Chroma": "chromadb",
    "Haystack": "haystack_integrations.components.embedders.sentence_transformers",
    "txtai": "txtai",
    "mteb": "mteb",
}
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
PAGE, *SECTIONS = re.split(r"^## ", (REPOSITORY / "docs" / "integrations.md").read_text("utf-8"), flags=re.MULTILINE)
SNIPPETS = {text.partition("\n")[0]: BLOCK.search(text)[1] for text in SECTIONS if BLOCK.search(text)}
INSTALLS = {
    text.partition("\n")[0]: match[1].replace("'hmde[", f"'{REPOSITORY}[").replace("'", "")
    for text in SECTIONS
    if (match := re.search(r"`pip install (.+?)`", text))
}
BEFORE = BLOCK.search(PAGE)[1]
AFTER = "\nimport json; print(json.dumps([(title, float(score)) for title, score in found]))\n"
SEARCH = "torch transformers sentencex"

# What is installed for each program, that a file holds or a section.
FRESH_ENVIRONMENTS = INSTALLS | {
    EXAMPLES / "search.py": SEARCH,
    INTEGRATIONS / "pipelines.py": SEARCH,
    INTEGRATIONS / "lora.py": f"{SEARCH} peft",
    INTEGRATIONS / "txtai_poolings.py": f"{INSTALLS['txtai']} pytest",
}


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(scope="module")
def desk(exported_folder: Path, documents: list[str], tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A folder with a model and documents, and what it finds there."""
    folder = tmp_path_factory.mktemp("desk")
    shutil.copytree(exported_folder, folder / "runs" / "hmde-small")
    model = HMDEForDocumentEmbedding.from_pretrained(exported_folder)
    tokenizer = HMDETokenizer.from_pretrained(exported_folder)
    lines = [json.dumps({"title": f"document {place}", "text": text}) for place, text in enumerate(documents)]
    (folder / "docs").mkdir()
    (folder / "docs" / "en.jsonl").write_text("\n".join(lines), encoding="utf-8")
    for package in ("hmde", "modeling_hmde"):
        shutil.copytree(REPOSITORY / package, folder / package)
    return SimpleNamespace(folder=folder, model=model, tokenizer=tokenizer, documents=documents)


def best_three(desk: SimpleNamespace, titles: list[str], texts: list[str], question: str) -> list[tuple[str, float]]:
    (query,) = desk.model.encode_queries([question], desk.tokenizer)
    cosines = desk.model.encode_documents(texts, desk.tokenizer) @ query
    assert cosines.min() > 0  # txtai leaves out other documents
    return sorted(zip(titles, cosines.tolist()), key=lambda hit: -hit[1])[:3]


def check_found(desk: SimpleNamespace, printed: str) -> None:
    given: dict = {}
    exec(BEFORE, given)
    expected = best_three(desk, [*given["texts"]], [*given["texts"].values()], given["question"])
    found = json.loads(printed.splitlines()[-1])
    assert [title for title, _ in found] == [title for title, _ in expected]
    np.testing.assert_allclose([score for _, score in found], [score for _, score in expected], atol=1e-4)


def check_printed(desk: SimpleNamespace, printed: str, question: str) -> None:
    titles = [f"document {place}" for place in range(len(desk.documents))]
    expected = best_three(desk, titles, desk.documents, question)
    assert printed.splitlines()[-4:] == [question, *(f"  {score:.3f}  {title}" for title, score in expected)]


def run(python: str | Path, *arguments: str | Path, folder: Path) -> str:
    """What Python prints that sees neither this repository nor the user's packages."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [python, "-I", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_every_section_with_a_program_is_run_here() -> None:
    assert {*SNIPPETS} == {*NEEDS} == {*INSTALLS}


@pytest.mark.parametrize("section", NEEDS)
def test_a_library_ranks_as_the_model_does(
    section: str, desk: SimpleNamespace, run_in_a_fresh_process: Callable[..., str]
) -> None:
    if not is_installed(NEEDS[section]):
        pytest.skip(f"{NEEDS[section]} is not installed; `make integrations` installs it")
    path = [str(desk.folder)] if str(REPOSITORY) in INSTALLS[section] else []
    check_found(desk, run_in_a_fresh_process(BEFORE + SNIPPETS[section] + AFTER, folder=desk.folder, path=path))


def test_the_example_ranks_as_the_model_does(desk: SimpleNamespace, run_in_a_fresh_process: Callable[..., str]) -> None:
    program, question = (EXAMPLES / "search.py").read_text(encoding="utf-8"), "Der Hund sah die Katze?"
    printed = run_in_a_fresh_process(program, "runs/hmde-small", "docs/en.jsonl", question, folder=desk.folder)
    check_printed(desk, printed, question)


def test_faiss_finds_in_what_was_encoded_what_the_model_finds(desk: SimpleNamespace) -> None:
    pytest.importorskip("faiss")
    question, lines = "Der Hund sah die Katze?", desk.folder / "lines.jsonl"
    rows = [{"id": f"document {place}", "text": text} for place, text in enumerate(desk.documents)]
    lines.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    model, embeddings = str(desk.folder / "runs" / "hmde-small"), str(desk.folder / "embeddings")
    encode(EncodeOptions(str(lines), embeddings, model, dtype="float32"))
    program = EXAMPLES / "search_with_faiss.py"
    printed = run(sys.executable, program, model, embeddings, "vectors.faiss", question, folder=desk.folder)
    check_printed(desk, printed, question)


@pytest.mark.fresh_environment
@pytest.mark.timeout(3600)  # a gigabyte is installed
@pytest.mark.parametrize("program", FRESH_ENVIRONMENTS, ids=lambda program: Path(program).stem)
def test_a_saved_folder_serves_where_nothing_else_is_installed(program: str | Path, desk: SimpleNamespace) -> None:
    environment, question = desk.folder / "environment", "Der Hund sah die Katze?"
    try:
        venv.create(environment, with_pip=True, symlinks=True)
        python = environment / "bin" / "python"
        packages = ["--constraint", REPOSITORY / "constraints.txt", *FRESH_ENVIRONMENTS[program].split()]
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-compile", *packages], check=True
        )
        find = "from importlib.util import find_spec; print(*map(bool, map(find_spec, ['modeling_hmde', 'torch'])))"
        of_hmde = str(REPOSITORY) in FRESH_ENVIRONMENTS[program]
        expected = f"{of_hmde} {program != 'ONNX Runtime'}"
        assert run(python, "-c", find, folder=desk.folder).strip() == expected
        if isinstance(program, str):
            check_found(desk, run(python, "-c", BEFORE + SNIPPETS[program] + AFTER, folder=desk.folder))
        else:
            printed = run(python, program, "runs/hmde-small", "docs/en.jsonl", question, folder=desk.folder)
            check_printed(desk, printed, question)
    finally:
        shutil.rmtree(environment)  # a gigabyte
