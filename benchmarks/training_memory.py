"""The memory of a GPU that training with an adapter should take, by arithmetic.

    python -m benchmarks.training_memory --config configuration/benchmarks/training-memory.yaml

* Weights: 4 bytes each, and 12 more for each that is trained: its gradient, and the two moments of AdamW.
* Activations, in bfloat16 where autocast has it so. On a CPU, encoders of two and of three layers read few tokens, and
  the bytes that they keep for the backward pass are counted. From these follows what all layers keep for all tokens
  that are encoded at once. With checkpointing every layer keeps its input, and one layer at a time all that it needs.

What a GPU's kernels and its allocator need comes on top. Writes results.md and results.json.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import common.threads

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedConfig

from benchmarks.measure import markdown_table, write_results
from common.command_line import options_from, run
from common.numbers import PositiveInt
from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding
from training.lora import Lora, add_lora


@dataclass
class TrainingMemoryBenchmark:
    """Compute what training takes of a GPU's memory."""

    encoders: dict[str, dict[str, Any]]
    """By name: the fields of a sentence encoder's configuration, or `name_or_path`, whose configuration it is."""

    tokens: PositiveInt = 16_384
    """Tokens that are encoded at once, `max_tokens_per_chunk` of a recipe."""

    lora: Lora = field(default_factory=Lora)
    """The adapter."""

    output: str = "runs/benchmark-training-memory"
    """Folder of results.md and results.json."""


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(TrainingMemoryBenchmark, argv)
    rows = []
    for name, fields in benchmark.encoders.items():
        config = (
            AutoConfig.from_pretrained(fields["name_or_path"])
            if "name_or_path" in fields
            else AutoConfig.for_model(**fields)
        )
        rows.append({"encoder": name} | memory(config, benchmark.tokens, benchmark.lora))
    formats = dict.fromkeys(rows[0], ".1f") | {"encoder": ""}
    write_results(benchmark, markdown_table(formats, rows), rows=rows)


def memory(config: PreTrainedConfig, tokens: int, lora: Lora) -> dict[str, float]:
    """Gigabytes of 10^9 bytes, and millions of weights."""
    with torch.device("meta"):
        model = HMDEForDocumentEmbedding(HMDEConfig(sentence_config=config))
        add_lora(model.hmde.sentence_encoder, lora)
    all_weights = sum(weight.numel() for weight in model.parameters())
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    weights = 4 * all_weights + 12 * trained
    fixed, per_token = kept_by_layer(config, lora)
    whole_layer = fixed + per_token * tokens
    layers = config.num_hidden_layers
    return {
        "weights, millions": all_weights / 1e6,
        "trained, millions": trained / 1e6,
        "weights and AdamW, GB": weights / 1e9,
        "activations, GB": layers * whole_layer / 1e9,
        "activations with checkpointing, GB": (layers * 4 * config.hidden_size * tokens + whole_layer) / 1e9,
    }


def kept_by_layer(config: PreTrainedConfig, lora: Lora) -> tuple[float, float]:
    """Bytes that one layer keeps for its backward pass: a fixed part, which is its weights in bfloat16, and a part for
    each token. The mask of a CPU's attention, which grows with the square of the tokens, is left out: packed attention
    has none."""
    count = 128  # tokens
    once, twice, thrice = (
        kept(config, 3, lora, times * count) - kept(config, 2, lora, times * count) for times in (1, 2, 3)
    )
    squares = (thrice - 2 * twice + once) / 2
    per_token = (twice - once - 3 * squares) / count
    return once - per_token * count - squares, per_token


def kept(config: PreTrainedConfig, num_layers: int, lora: Lora, num_tokens: int) -> int:
    """Bytes that an encoder of so many layers keeps for the backward pass of one text, beside its weights."""
    fields = {name: value for name, value in config.to_dict().items() if name != "layer_types"}
    changed = {"num_hidden_layers": num_layers, "vocab_size": 1}
    changed |= dict.fromkeys((name for name in fields if name.endswith("_token_id")), 0)
    encoder = AutoModel.from_config(type(config)(**fields | changed), attn_implementation="sdpa").float()
    add_lora(encoder, lora)
    own = {weight.untyped_storage().data_ptr() for weight in encoder.parameters()}
    storages: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    states = torch.randn(1, num_tokens, config.hidden_size, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), torch.autocast("cpu", torch.bfloat16):
        encoder.train()(inputs_embeds=states)
    return sum(tensor.untyped_storage().nbytes() for place, tensor in storages.items() if place not in own)


if __name__ == "__main__":
    run(main)
