"""What int8 gives on one CPU thread: first for a linear layer, then for documents.

    python -m benchmarks.int8
    python -m benchmarks.int8 --documents FOLDER --data data/eval/clir-xquad-r --encoder runs/e5-small

The first table multiplies the hidden states of 2,048 tokens by the weights of multilingual-e5-small's feed-forward
layers: in float32 and bfloat16; in int8, weights and activations, by ONNX Runtime, as
`python -m release_tools.export_onnx` writes it, and by PyTorch's dynamic quantization; and by PyTorch's int8 product,
which torchao takes where it does not compile.

The second table, on documents and a retrieval set, measures an HMDE before training with passages of 512 tokens: speed,
cosine with float32 and MAP, with the sentence encoder's linear layers in int8 and its attention in float32.

Times are CPU time, which other programs change little; those of documents are medians over rounds. Writes results.md
and results.json.
"""

from __future__ import annotations

import copy
import importlib.util
import statistics
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import common.threads

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import nn

from benchmarks.encode import EncodeBenchmark, draw, read_documents
from benchmarks.measure import alternate, markdown_table, median_ratio, timed, write_results
from common.command_line import options_from, run
from common.numbers import NonNegativeInt, PositiveInt
from evaluation.datasets.retrieval_sets import read_retrieval_set
from evaluation.recipes import SystemOptions
from evaluation.systems import load_system
from evaluation.systems.hmde import HMDESystem
from evaluation.tasks.retrieval import evaluate_retrieval

TOKENS = 2048  # whose hidden states a layer multiplies
MethodName = Literal["float32", "bfloat16", "torch", "torchao"]


@dataclass
class Int8Benchmark:
    """Compare int8 with float32 and bfloat16 on a CPU."""

    documents: str | None = None
    """Folder of article tables, whose documents are timed. Without it, only layers are timed."""

    data: str | None = None
    """Retrieval set of `pair`, in the format of evaluation/datasets/retrieval_sets.py; required with documents."""

    encoder: str = "runs/e5-small"
    """Hub name or folder of the sentence encoder."""

    output: str = "runs/benchmark-int8"
    """Folder of results.md and results.json."""

    methods: list[MethodName] = field(default_factory=lambda: ["float32", "bfloat16", "torch", "torchao"])
    """float32 among them. torchao is left out where it is not installed."""

    pair: str = "en-de"
    """Languages of queries and documents."""

    num_documents: PositiveInt = 24
    """Timed documents, drawn by a fixed seed and cut to 32 sentences."""

    max_queries: NonNegativeInt = 0
    """Only the first so many queries; 0 for all."""

    rounds: PositiveInt = 3
    """Trials of each method."""

    def __post_init__(self) -> None:
        if (self.documents is None) != (self.data is None):
            raise ValueError("documents and data belong together: nearness without retrieval says little; give both")


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(Int8Benchmark, argv)
    torch.set_num_threads(1)
    layers = [{"weights": f"{inner} x {columns}"} | layer_rates(inner, columns) for inner, columns in LAYERS]
    markdown = markdown_table({name: "" if name == "weights" else ".0f" for name in layers[0]}, layers)
    results: dict[str, Any] = {"layers": layers}
    if benchmark.documents is not None:
        seconds, rows = measure_documents(benchmark)
        formats = {"documents/s": ".2f", "times float32": ".2f", "lowest cosine with float32": ".4f", "MAP": ".3f"}
        markdown += "\n" + markdown_table({"method": ""} | formats, rows)
        results |= {"seconds": seconds, "rows": rows}
    write_results(benchmark, markdown, **results)


# --- a linear layer --------------------------------------------------------------------------------------------------

LAYERS = ((384, 1536), (1536, 384))  # multilingual-e5-small's feed-forward layers


def layer_rates(inner: int, columns: int) -> dict[str, Any]:
    """Billion operations a second, by method: hidden states (2,048 tokens, inner) times weights (inner, columns)."""
    states, layer = torch.randn(TOKENS, inner), nn.Linear(inner, columns)
    integers = (torch.randint(-127, 128, shape, dtype=torch.int8) for shape in ((TOKENS, inner), (inner, columns)))
    quantized, in_bfloat16 = in_int8(nn.Sequential(copy.deepcopy(layer))), copy.deepcopy(layer).bfloat16()
    methods: dict[str, Callable[[], object]] = {
        "float32": partial(layer, states),
        "bfloat16": partial(in_bfloat16, states.bfloat16()),
        "int8, ONNX Runtime": onnx_product(states.numpy(), layer.weight.detach().T.numpy()),
        "int8, PyTorch": partial(quantized, states),
        "int8, product of torchao": partial(torch._int_mm, *integers),
    }
    with torch.inference_mode():
        return {name: 2e-9 * TOKENS * inner * columns / least_seconds(method) for name, method in methods.items()}


def least_seconds(call: Callable[[], object]) -> float:
    """CPU time of the fastest of a few calls."""
    call()
    seconds = []
    for _ in range(5):
        with timed() as taken:
            call()
        seconds.append(taken.cpu_seconds)
    return min(seconds)


def onnx_product(states: np.ndarray, weights: np.ndarray) -> Callable[[], object]:
    """(tokens, inner) times (inner, columns) by ONNX Runtime in int8, weights and activations."""
    shapes = {"states": ["tokens", weights.shape[0]], "product": ["tokens", weights.shape[1]]}
    values = {
        name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()
    }
    node = onnx.helper.make_node("MatMul", ["states", "weights"], ["product"])
    constant = onnx.numpy_helper.from_array(np.ascontiguousarray(weights), "weights")
    graph = onnx.helper.make_graph([node], "product", [values["states"]], [values["product"]], [constant])
    opset = onnx.helper.make_opsetid("", 18)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        whole, quantized = Path(folder) / "float32.onnx", Path(folder) / "int8.onnx"
        onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10), whole)
        quantize_dynamic(whole, quantized, weight_type=QuantType.QInt8)
        session = onnxruntime.InferenceSession(quantized, options, providers=["CPUExecutionProvider"])
    return partial(session.run, None, {"states": states})


# --- documents -------------------------------------------------------------------------------------------------------


def measure_documents(benchmark: Int8Benchmark) -> tuple[dict[str, list[float]], list[dict[str, Any]]]:
    """The CPU seconds of all rounds by method, and a row of results for each method."""
    assert benchmark.documents is not None
    assert benchmark.data is not None
    names = [name for name in benchmark.methods if name != "torchao" or importlib.util.find_spec("torchao")]
    drawn = EncodeBenchmark(
        benchmark.documents, benchmark.encoder, benchmark.output, num_documents=benchmark.num_documents
    )
    documents = draw(read_documents(Path(benchmark.documents)), "mixed", drawn)
    texts, languages = [document.text for document in documents], [document.language for document in documents]
    retrieval_set = read_retrieval_set(benchmark.data, [benchmark.pair])
    if benchmark.max_queries:
        queries = {
            language: dict(islice(queries.items(), benchmark.max_queries))
            for language, queries in retrieval_set.queries.items()
        }
        retrieval_set = replace(retrieval_set, queries=queries)
    systems: dict[str, HMDESystem] = {name: load(name, benchmark.encoder) for name in names}
    vectors: dict[str, np.ndarray] = {}

    def encode(name: str) -> float:
        with timed() as taken:
            system = systems[name]
            vectors[name] = system.model.encode_documents(texts, system.tokenizer, language=languages)
        return taken.cpu_seconds

    seconds = alternate({name: partial(encode, name) for name in systems}, benchmark.rounds)
    rows = [
        {
            "method": name,
            "documents/s": len(texts) / statistics.median(seconds[name]),
            "times float32": median_ratio(seconds["float32"], seconds[name]),
            "lowest cosine with float32": float((vectors[name] * vectors["float32"]).sum(axis=1).min()),
            "MAP": evaluate_retrieval(system, retrieval_set, [benchmark.pair])[benchmark.pair]["MAP"],
        }
        for name, system in systems.items()
    ]
    return seconds, rows


def load(name: MethodName, encoder: str) -> HMDESystem:
    """An HMDE before training, with passages of 512 tokens, whose sentence encoder computes in a dtype."""
    recipe = SystemOptions("passages", encoder, pooling="mean", query_prompt="query: ")
    system = load_system(recipe, torch.bfloat16 if name == "bfloat16" else torch.float32)
    sentence_encoder = system.model.hmde.sentence_encoder
    if name == "torch":
        in_int8(sentence_encoder)
    elif name == "torchao":
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        quantize_(sentence_encoder, Int8DynamicActivationInt8WeightConfig())
    return system


def in_int8(module: nn.Module) -> nn.Module:
    """A module whose linear layers now compute in int8 by PyTorch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is to move to torchao
        return torch.ao.quantization.quantize_dynamic(module, {nn.Linear}, dtype=torch.qint8, inplace=True)


if __name__ == "__main__":
    run(main)
