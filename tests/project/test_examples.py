"""The examples, and every library that a saved folder drops into, find what the model itself finds.

Each is a program that is given a folder, documents and a question and prints the three best documents. The examples run
in a process of their own. All run a second time, as users have them: in a new virtual environment in which nothing is
installed but what the program asks for, out of reach of this repository. That installs much and so waits for
`make integrations`.
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
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.paths import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
INTEGRATIONS = REPOSITORY / "tests" / "integrations"
NEEDS = {
    "search": "transformers",
    "sentence_transformers_search": "sentence_transformers",
    "onnx_search": "onnxruntime",
    "langchain_search": "langchain_huggingface",
    "langchain_retriever": "langchain_core",
    "llama_index_search": "llama_index.embeddings.huggingface",
    "llama_index_retriever": "llama_index.core",
    "chroma_search": "chromadb",
    "haystack_search": "haystack_integrations.components.embedders.sentence_transformers",
    "txtai_search": "txtai",
    "setfit_topics": "setfit",
    "bertopic_topics": "bertopic",
    "mteb_search": "mteb",
}
ENCODERS = {"ray_encode": "ray.data", "spark_encode": "pyspark"}  # of collections
IN_A_CLONE = ("langchain_retriever", "llama_index_retriever")  # these need more than a saved folder
QUESTION = "Der Hund sah die Katze?"


def packages_of(example: str) -> str:
    """What an example tells its reader to install."""
    (packages,) = re.findall(
        r"^ +pip install (.+?)(?: +\(.+\))?$", (EXAMPLES / f"{example}.py").read_text(), re.MULTILINE
    )
    return packages.replace("'.[", f"'{REPOSITORY}[").replace("'", "")


# What is installed for each program.
FRESH_ENVIRONMENTS = {EXAMPLES / f"{example}.py": packages_of(example) for example in NEEDS} | {
    INTEGRATIONS / "pipelines.py": packages_of("search"),
    INTEGRATIONS / "lora.py": f"{packages_of('search')} peft",
    INTEGRATIONS / "txtai_poolings.py": f"{packages_of('txtai_search')} pytest",
    INTEGRATIONS / "terminal.py": f"{REPOSITORY}[search]",
}


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(scope="module")
def desk(exported_folder: Path, documents: list[str], tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A folder with a model, documents and what some programs need beside them, and what is to be printed."""
    folder = tmp_path_factory.mktemp("desk")
    shutil.copytree(exported_folder, folder / "model")
    model = HMDEForDocumentEmbedding.from_pretrained(folder / "model")
    tokenizer = HMDETokenizer.from_pretrained(folder / "model")
    lines = [json.dumps({"title": f"document {place}", "text": text}) for place, text in enumerate(documents)]
    (folder / "docs").mkdir()
    (folder / "docs" / "en.jsonl").write_text("\n".join(lines), encoding="utf-8")
    for package in ("hmde", "modeling_hmde"):
        shutil.copytree(REPOSITORY / package, folder / package)

    cosines = model.encode_documents(documents, tokenizer) @ model.encode_queries([QUESTION], tokenizer)[0]
    assert cosines.min() > 0  # txtai leaves out other documents
    best = cosines.argsort()[::-1][:3]
    expected = [QUESTION, *(f"  {cosines[place]:.3f}  document {place}" for place in best)]
    return SimpleNamespace(folder=folder, expected=expected, model=model, tokenizer=tokenizer, documents=documents)


def run(python: str | Path, *arguments: str | Path, folder: Path) -> str:
    """What Python prints that sees neither this repository nor the user's packages."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1", "GRADIO_ANALYTICS_ENABLED": "False"}
    environment |= {"PYSPARK_PYTHON": str(python)}  # else Spark's workers take the first python3 of PATH
    done = subprocess.run(
        [python, "-I", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("example", NEEDS)
def test_an_example_ranks_as_the_model_does(
    example: str, desk: SimpleNamespace, run_in_a_fresh_process: Callable[..., str]
) -> None:
    for module in (NEEDS[example], *(["onnxscript"] if example == "onnx_search" else [])):
        if not is_installed(module):
            pytest.skip(f"{module} is not installed; `make integrations` installs it")
    program = (EXAMPLES / f"{example}.py").read_text(encoding="utf-8")
    printed = run_in_a_fresh_process(program, "model", "docs/en.jsonl", QUESTION, folder=desk.folder)
    assert printed.splitlines()[-4:] == desk.expected


@pytest.mark.parametrize("example", ENCODERS)
def test_a_collection_is_encoded_by_two_workers(example: str, desk: SimpleNamespace) -> None:
    if not is_installed(ENCODERS[example]) or (example == "spark_encode" and shutil.which("java") is None):
        pytest.skip(f"{ENCODERS[example]} is not installed; `make integrations` installs it")
    collection, output = desk.folder / "collection", desk.folder / example
    collection.mkdir(exist_ok=True)
    texts = [f"{text} {number}." for number in range(4) for text in desk.documents]
    table = pa.table(
        {"id": [*map(str, range(len(texts)))], "text": texts, "language": [None, "de"] * (len(texts) // 2)}
    )
    for part in range(2):
        pq.write_table(table.slice(part * (len(texts) // 2), len(texts) // 2), collection / f"{part}.parquet")
    run(sys.executable, EXAMPLES / f"{example}.py", "model", collection, output, "2", folder=desk.folder)
    rows = {row["id"]: row["embedding"] for row in pq.read_table(output, schema=None).to_pylist()}
    expected = desk.model.encode_documents(texts, desk.tokenizer, language=table["language"].to_pylist())
    np.testing.assert_allclose([rows[id] for id in table["id"].to_pylist()], expected, atol=1e-5)


@pytest.mark.fresh_environment
@pytest.mark.timeout(3600)  # a gigabyte is installed
@pytest.mark.parametrize("program", FRESH_ENVIRONMENTS, ids=lambda program: program.stem)
def test_a_saved_folder_serves_where_nothing_else_is_installed(program: Path, desk: SimpleNamespace) -> None:
    environment = desk.folder / "environment"
    try:
        venv.create(environment, with_pip=True, symlinks=True)
        python = environment / "bin" / "python"
        packages = ["--constraint", REPOSITORY / "constraints.txt", *FRESH_ENVIRONMENTS[program].split()]
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-compile", *packages], check=True
        )
        find = "from importlib.util import find_spec; print(*map(bool, map(find_spec, ['modeling_hmde', 'torch'])))"
        in_a_clone = dict.fromkeys(("terminal", *IN_A_CLONE), "True True")
        expected = (in_a_clone | {"onnx_search": "False False"}).get(program.stem, "False True")
        assert run(python, "-c", find, folder=desk.folder).split() == expected.split()
        printed = run(python, program, "model", "docs/en.jsonl", QUESTION, folder=desk.folder)
        assert printed.splitlines()[-4:] == desk.expected
    finally:
        shutil.rmtree(environment)  # a gigabyte
