"""What int8 gives on this processor: speed, nearness to float32, and what it costs in retrieval.

    python -m evaluation.benchmarks.int8 --documents FOLDER --data data/eval/clir-xquad-r --encoder runs/e5-small

The sentence encoder's linear layers in int8, weights and activations, by PyTorch's dynamic quantization and, where it
is installed, by torchao; its attention stays float32. Beside them float32, and bfloat16. One HMDE before training, with
passages of 512 tokens, encodes the same documents in turns on one thread. Times are the processor's, which other
programs change little; ratios are medians within a round. Writes int8.md and int8.json.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
import warnings
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn

from evaluation.benchmarks.encode import EncodeBenchmarkRecipe, draw, read_documents
from evaluation.readers import read_retrieval_set
from evaluation.recipes import SystemRecipe
from evaluation.report import environment
from evaluation.retrieval import evaluate_retrieval
from evaluation.systems import HMDESystem, load_hmde
from foundation.command_line import options_from
from foundation.files import write_json, write_text

WayName = Literal["float32", "bfloat16", "torch", "torchao"]


@dataclass
class Int8Benchmark:
    """Compare int8 with float32 and bfloat16 on a processor."""

    documents: str
    """Folder of article tables, whose documents are timed."""

    data: str
    """Retrieval set of `pair`, in the format that evaluation/readers.py describes."""

    encoder: str = "runs/e5-small"
    """Hub name or folder of the sentence encoder."""

    output: str = "runs/benchmark-int8"
    """Folder of int8.md and int8.json."""

    ways: list[WayName] = field(default_factory=lambda: ["float32", "bfloat16", "torch", "torchao"])
    """float32 among them. torchao is left out where it is not installed."""

    pair: str = "en-de"
    """Of queries and documents."""

    num_documents: int = 24
    """Timed documents, drawn by a fixed seed and cut to 32 sentences."""

    max_queries: int = 0
    """The first so many queries are asked; 0 for all."""

    rounds: int = 3
    """How often each way has its turn."""


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(Int8Benchmark, argv)
    torch.set_num_threads(1)
    names = [name for name in benchmark.ways if name != "torchao" or importlib.util.find_spec("torchao")]
    timed = EncodeBenchmarkRecipe(
        documents=benchmark.documents,
        encoder=benchmark.encoder,
        output=benchmark.output,
        num_documents=benchmark.num_documents,
    )
    documents = draw(read_documents(Path(benchmark.documents)), "mixed", timed)
    texts, languages = [document.text for document in documents], [document.language for document in documents]
    retrieval_set = read_retrieval_set(benchmark.data, [benchmark.pair])
    if benchmark.max_queries:
        retrieval_set.queries = {
            language: dict(islice(queries.items(), benchmark.max_queries))
            for language, queries in retrieval_set.queries.items()
        }
    systems = {name: load(name, benchmark.encoder) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    vectors: dict[str, np.ndarray] = {}
    for _ in range(benchmark.rounds):
        for name, system in systems.items():
            began = time.process_time()
            vectors[name] = system.model.encode_documents(texts, system.tokenizer, language=languages)
            seconds[name].append(time.process_time() - began)
    rows = {
        name: {
            "documents/s": len(texts) / statistics.median(seconds[name]),
            "times float32": statistics.median(map(float.__truediv__, seconds["float32"], seconds[name])),
            "lowest cosine": float((vectors[name] * vectors["float32"]).sum(axis=1).min()),
            "MAP": evaluate_retrieval(system, retrieval_set, [benchmark.pair])[benchmark.pair]["MAP"],
        }
        for name, system in systems.items()
    }
    table = to_markdown(rows)
    print(table)
    write_text(Path(benchmark.output) / "int8.md", table)
    content = {"recipe": asdict(benchmark), "environment": environment(), "seconds": seconds, "rows": rows}
    write_json(Path(benchmark.output) / "int8.json", content)


def load(name: WayName, encoder: str) -> HMDESystem:
    """An HMDE before training, with passages of 512 tokens, whose sentence encoder computes in a number format."""
    recipe = SystemRecipe(kind="passages", model=encoder, pooling="mean", query_prompt="query: ")
    system = load_hmde(recipe, torch.bfloat16 if name == "bfloat16" else torch.float32)
    sentence_encoder = system.model.hmde.sentence_encoder
    if name == "torch":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is to move to torchao
            torch.ao.quantization.quantize_dynamic(sentence_encoder, {nn.Linear}, dtype=torch.qint8, inplace=True)
    elif name == "torchao":
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        quantize_(sentence_encoder, Int8DynamicActivationInt8WeightConfig())
    return system


def to_markdown(rows: dict[str, dict[str, float]]) -> str:
    lines = ["| | documents/s | times float32 | lowest cosine with float32 | MAP |", "|:---|---:|---:|---:|---:|"]
    for name, row in rows.items():
        lines.append(
            f"| {name} | {row['documents/s']:.2f} | {row['times float32']:.2f} | {row['lowest cosine']:.4f} |"
            f" {row['MAP']:.3f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
