"""How fast causal and other large encoders read sentences packed end to end, beside padded batches.

    python -m benchmarks.packed_families

The encoders have random weights, about 100 million without the word embeddings, and shapes like Qwen3-Embedding's and
EmbeddingGemma's. Packed and padded trials alternate; the ratio is the median of the ratios within a round. "sorted"
batches have sentences of similar length, as HMDE makes them; "as they come" pads each batch to the longest of its
sentences, as a loop over batches of a fixed size does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import common.threads

import torch
from transformers import AutoConfig

from benchmarks.measure import alternate, markdown_table, median_ratio, timed
from common.command_line import options_from, run
from common.numbers import PositiveInt
from evaluation.tables import environment
from modeling_hmde import HMDEConfig, HMDEModel

VOCABULARY = 8_000  # small, because lookups cost nothing
SHAPES: dict[str, dict[str, Any]] = {
    "Qwen3": {
        "model_type": "qwen3",
        "hidden_size": 768,
        "intermediate_size": 2304,
        "num_hidden_layers": 14,
        "num_attention_heads": 12,
        "num_key_value_heads": 6,
        "head_dim": 64,
    },
    "Gemma 3": {
        "model_type": "gemma3_text",
        "hidden_size": 768,
        "intermediate_size": 1152,
        "num_hidden_layers": 24,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "sliding_window": 512,
        "use_bidirectional_attention": True,
    },
}


@dataclass
class PackedFamilies:
    """Compare packed with padded sentences for encoders of 100 million weights."""

    documents: PositiveInt = 4
    """Documents of a batch, each of 8 sentences of 5 to 60 random tokens."""
    rounds: PositiveInt = 3
    """Trials of each kind."""


def rows(documents: int) -> dict[str, torch.Tensor]:
    """A batch of documents of random tokens, without padding, since all have as many tokens as the first."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(5, 61, (8,), generator=generator)
    ids = torch.randint(3, VOCABULARY, (documents, int(lengths.sum())), generator=generator)
    orders = [lengths[torch.randperm(8, generator=generator)] for _ in range(documents)]
    sentence_ids = torch.stack([torch.arange(8).repeat_interleave(order) for order in orders])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "sentence_ids": sentence_ids}


def one_batch(model: HMDEModel, inputs: dict[str, torch.Tensor]) -> None:
    """All sentences of each document as one padded batch, in the order of the document."""
    for ids, sentences in zip(inputs["input_ids"], inputs["sentence_ids"]):
        parts = ids.split(sentences.bincount().tolist())
        padded = torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(part) for part in parts], batch_first=True)
        model.sentence_encoder(input_ids=padded, attention_mask=mask)


def make_model(shape: dict[str, Any], attention: str) -> HMDEModel:
    fields = {name: value for name, value in shape.items() if name != "model_type"}
    sentence_config = AutoConfig.for_model(shape["model_type"], vocab_size=VOCABULARY, pad_token_id=0, **fields)
    config = HMDEConfig(sentence_config=sentence_config, sentence_pooling="lasttoken")
    config._attn_implementation = attention
    torch.manual_seed(0)
    return HMDEModel(config).eval()


def seconds(read: Any, *arguments: Any, **inputs: Any) -> float:
    with torch.no_grad(), timed() as time:
        read(*arguments, **inputs)
    return time.seconds


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(PackedFamilies, argv)
    print(environment())
    inputs, table = rows(benchmark.documents), []
    for name, shape in SHAPES.items():
        packed, padded = make_model(shape, "packed"), make_model(shape, "sdpa")
        weights = sum(weight.numel() for weight in packed.sentence_encoder.parameters())
        weights -= packed.get_input_embeddings().weight.numel()  # type: ignore[operator]

        trials = {
            "packed": partial(seconds, packed.encode_sentences, **inputs),
            "sorted": partial(seconds, padded.encode_sentences, **inputs),
            "as they come": partial(seconds, one_batch, padded, inputs),
        }
        times = alternate(trials, benchmark.rounds)
        row = {"shape": name, "million weights": weights / 1e6}
        row |= {"packed, tokens/s": inputs["input_ids"].numel() / min(times["packed"])}
        for kind in ("sorted", "as they come"):
            row[f"times as fast as padded, {kind}"] = median_ratio(times[kind], times["packed"])
        table.append(row)
    formats = {column: ".2f" if "fast" in column else ".0f" for column in table[0]} | {"shape": ""}
    print(markdown_table(formats, table))


if __name__ == "__main__":
    run(main)
