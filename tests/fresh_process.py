"""Programs run by a Python that finds nothing of this repository, or by one that does; none waits for imports.

Such a Python imports torch and transformers once, which takes seconds, and then forks for each program. The program is
in a process of its own, in which no line of this repository has run and no model has been loaded: for what a saved
folder needs, it is as fresh as a new one. How a command starts is tested with a new process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

LIBRARIES = (
    "numpy",
    "torch",
    "transformers.dynamic_module_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.bert.modeling_bert",
    "transformers.models.xlm_roberta.modeling_xlm_roberta",
)

# Reads the programs, one a line, and answers with the status of each. What follows the loop is a child's.
FORK = """
import gc, importlib, json, os, sys

for library in sys.argv[1:]:
    importlib.import_module(library)
gc.freeze()  # a child that looked through what is imported would copy it
answers = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)
else:
    os._exit(0)
given = json.loads(line)
for number, file in enumerate((os.devnull, given["printed"], given["complained"])):
    os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
os.chdir(given["folder"])
os.environ |= given["environment"]
sys.argv, sys.path[:0] = ["-c", *given["arguments"]], given["path"]
import torch
torch.set_num_threads(1)
exec(compile(given["program"], "<program>", "exec"), {"__name__": "__main__"})
sys.stdout.flush()
os._exit(0)  # to tear down what is imported takes longer than most programs
"""


@contextmanager
def warm_python(
    work: Path, environment: dict[str, str], libraries: Sequence[str] = LIBRARIES
) -> Iterator[Callable[..., str]]:
    """A function that runs a program in a fresh process and returns what it prints.

    Args:
        work: a folder of this Python's own, in which transformers keeps what it copies.
        environment: all variables that programs find. Those of huggingface_hub are read before the first program.
        libraries: what is imported before.
    """
    variables = {"OMP_NUM_THREADS": "1", "HF_HOME": str(work / "cache"), **environment}
    python = subprocess.Popen(
        [sys.executable, "-I", "-c", FORK, *libraries],
        cwd=work,
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert python.stdin
    assert python.stdout

    def run(program: str, *arguments: str, folder: Path, path: Sequence[str] = (), **more: str) -> str:
        """What the program prints.

        Args:
            arguments: its `sys.argv[1:]`.
            folder: where it runs.
            path: what stands at the beginning of its `sys.path`.
            more: variables of its environment.

        Raises:
            AssertionError: it failed; what it complained of.
        """
        files = {name: work / name for name in ("printed", "complained")}
        given = {"program": program, "arguments": arguments, "path": path, "environment": more, "folder": folder}
        print(json.dumps(given | files, default=os.fspath), file=python.stdin, flush=True)
        status = python.stdout.readline().strip()
        assert status == "0", f"status {status}: {files['complained'].read_text()[-4000:]}"
        return files["printed"].read_text()

    with python:
        yield run
        python.stdin.close()


@pytest.fixture(scope="session")
def run_in_a_fresh_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """As `warm_python`, offline, with this repository out of reach but for what is installed."""
    with warm_python(tmp_path_factory.mktemp("fresh"), {"HF_HUB_OFFLINE": "1"}) as run:
        yield run


OPEN = """
import sys
sys.modules["modeling_hmde"] = sys.modules["peft"] = None  # as if they were not installed
import numpy as np
from transformers import AutoModel, AutoTokenizer

folder, output, *texts = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
model = AutoModel.from_pretrained(folder, trust_remote_code=True)
np.savez(output, documents=model.encode_documents(texts, tokenizer), queries=model.encode_queries(texts, tokenizer))
"""


@pytest.fixture
def encoded_elsewhere(
    run_in_a_fresh_process: Callable[..., str], tmp_path: Path
) -> Callable[[Path, list[str]], dict[str, np.ndarray]]:
    """Vectors of documents and queries, by a fresh process that has neither this package nor peft."""

    def encode(folder: Path, texts: list[str]) -> dict[str, np.ndarray]:
        run_in_a_fresh_process(OPEN, str(folder), str(tmp_path / "vectors.npz"), *texts, folder=tmp_path)
        return dict(np.load(tmp_path / "vectors.npz"))

    return encode
