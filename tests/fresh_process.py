"""Programs run in fresh processes, which do not wait for imports.

A Python with nothing of this repository on its path, but for what is installed, imports torch and transformers once,
which takes seconds, and forks for each program. There no line of this repository has run and no model has been loaded,
so the process is as fresh as a new one. How a command starts, and that a saved folder needs nothing that it does not
import itself (tests/project/test_hub.py), is tested in new ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
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
import gc, importlib, json, os, sys, types

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
sys.argv, sys.path[:0] = ["-c", *given["arguments"]], given["path"]
sys.modules["__main__"] = main = types.ModuleType("__main__")
exec(compile(given["program"], "<program>", "exec"), vars(main))
sys.stdout.flush()
os._exit(0)  # to tear down what is imported takes longer than most programs
"""


@pytest.fixture(scope="session")
def run_in_a_fresh_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """A function that runs a program as a process that has imported torch and transformers and nothing else."""
    work = tmp_path_factory.mktemp("fresh")
    python = subprocess.Popen(
        [sys.executable, "-I", "-c", FORK, *LIBRARIES],
        cwd=work,
        env={"HF_HOME": str(work), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert python.stdin
    assert python.stdout

    def run(program: str, *arguments: str, folder: Path, path: Sequence[str] = ()) -> str:
        """What the program prints.

        Args:
            arguments: its `sys.argv[1:]`.
            folder: where it runs.
            path: what stands at the beginning of its `sys.path`.

        Raises:
            AssertionError: it failed; what it complained of.
        """
        printed, complained = work / "printed", work / "complained"
        files = {"folder": str(folder), "printed": str(printed), "complained": str(complained)}
        given = {"program": program, "arguments": arguments, "path": path, **files}
        print(json.dumps(given), file=python.stdin, flush=True)
        status = python.stdout.readline().strip()
        assert status == "0", f"status {status}: {complained.read_text()[-4000:]}"
        return printed.read_text()

    with python:
        yield run
        python.stdin.close()


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
