"""The examples find what the model itself finds, from a folder alone, each in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
EXTRAS = {
    "search": "transformers",
    "langchain_search": "langchain_huggingface",
    "llama_index_search": "llama_index.embeddings.huggingface",
}


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("example", EXTRAS)
def test_an_example_ranks_as_the_model_does(
    example: str, xlmr: Path, make_model: Callable[..., HMDEForDocumentEmbedding], documents: list[str], tmp_path: Path
) -> None:
    if not is_installed(EXTRAS[example]):
        pytest.skip(f"{EXTRAS[example]} is not installed; it is in the extra 'integrations'")
    model = make_model(xlmr, sentence_pooling="mean")
    tokenizer = HMDETokenizer.from_sentence_encoder(str(xlmr), sentence_prompt="der: ", query_prompt="die: ")
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    lines = [json.dumps({"title": f"document {place}", "text": text}) for place, text in enumerate(documents)]
    (tmp_path / "documents.jsonl").write_text("\n".join(lines), encoding="utf-8")
    question = "Der Hund sah die Katze?"

    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    printed = subprocess.run(
        [sys.executable, "-I", EXAMPLES / f"{example}.py", "model", "documents.jsonl", question],
        cwd=tmp_path,
        env=environment | {"HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()

    cosines = model.encode_documents(documents, tokenizer) @ model.encode_queries([question], tokenizer)[0]
    best = cosines.argsort()[::-1][:3]
    assert question in printed
    assert printed[-3:] == [f"  {cosines[place]:.3f}  document {place}" for place in best]
