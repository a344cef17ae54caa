"""Time, utilisation and peak memory of a pretraining step in which the sentence encoder is trained too.

    python -m benchmarks.pretrain_step --sentence_encoder runs/e5-small
    python -m benchmarks.pretrain_step --sentence_encoder runs/e5-small --batch_sizes '[8, 64, 512]' \\
        --variants '[recommended]' --max_tokens_per_chunk 4096

Documents are random tokens in sentences and documents of mixed lengths. Each row is measured in a process of its own.
The rows alternate over the rounds, so that ratios hold on a machine whose speed varies. Writes results.md and
results.json.
"""

from __future__ import annotations

import functools
import multiprocessing
import statistics
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import hmde.common.threads

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from transformers import BertConfig

from benchmarks.measure import alternate, markdown_table, matmul_peak, median_ratio, peak_memory, timed, write_results
from hmde.common.command_line import options_from, run
from hmde.common.device import dtype_of
from hmde.common.numbers import PositiveInt
from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, attention_hmde
from training.data.batches import Batch
from training.data.kinds import DOCUMENTS, QUERIES
from training.encoder import TwoPathEncoder
from training.loop.cached_gradients import Embeddings, Rows, backward_through_chunks, cut_into_chunks
from training.losses import InfoNCE, Queries, weighted_losses
from training.losses.batch import BatchVectors

Variant = Literal["recommended", "pytorch_attention", "padded", "compiled", "float32", "one_core"]

SIZES: dict[str, dict[str, Any]] = {
    "small": {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 1536},
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
}


@dataclass
class StepBenchmark:
    """Time pretraining steps."""

    sentence_encoder: str | None = None
    """Hub name or folder. Without one, random weights of `size`."""

    size: Literal["small", "base"] = "small"
    """Sizes of the random weights: multilingual-e5-small's, or LaBSE's."""

    variants: list[Variant] = field(default_factory=lambda: ["recommended", "pytorch_attention", "float32", "one_core"])
    """recommended: bfloat16 where the hardware has it, all cores, packed. The others differ in one thing. Only one_core
    differs in two, for it has PyTorch's attention too: what `accelerate launch` gives a program that does not ask for
    more. compiled is the recipes' `compile`."""

    batch_sizes: list[int] = field(default_factory=lambda: [16])
    """Triples in a step."""

    max_tokens_per_chunk: PositiveInt = 16_384
    """As in a pretraining recipe."""

    max_sentences: PositiveInt = 64
    """Most sentences of a document; half of that on average."""

    passage_length: int = 512
    """As in HMDEConfig."""

    rounds: PositiveInt = 3
    """Trials of each row, each in a process of its own; the median is reported."""

    steps: PositiveInt = 1
    """Steps that each trial times; their median counts."""

    output: str = "runs/benchmark-pretrain-step"
    """Folder of results.md and results.json."""


class Step(NamedTuple):
    """One measured step."""

    seconds: float
    chunks: int
    tokens: int
    utilisation: float  # model FLOPs a second, over the peak measured just before
    memory: float  # MiB, peak of the GPU or of the process


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(StepBenchmark, argv)
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["benchmarks.pretrain_step"])  # imports take seconds

    def trial(variant: Variant, batch_size: int) -> Step:
        with server.Pool(1) as pool:
            return pool.apply(measure_step, (benchmark, variant, batch_size))

    trials = alternate(
        {
            f"{variant}, {size} triples": functools.partial(trial, variant, size)
            for size in benchmark.batch_sizes
            for variant in benchmark.variants
        },
        benchmark.rounds,
    )
    numbers = {name: [step._asdict() for step in steps] for name, steps in trials.items()}
    write_results(benchmark, to_markdown(trials), trials=numbers)


def to_markdown(trials: dict[str, list[Step]]) -> str:
    """Medians; ratios are the median ratio within a round."""
    first = [step.seconds for step in next(iter(trials.values()))]
    rows = []
    for name, steps in trials.items():
        seconds, chunks, tokens, utilisation, memory = (statistics.median(values) for values in zip(*steps))
        rows.append(
            {
                "variant": name,
                "chunks": chunks,
                "seconds": seconds,
                "times as long as the first": median_ratio([step.seconds for step in steps], first),
                "tokens/s": tokens / seconds,
                "share of the peak": utilisation,
                "MiB": memory,
            }
        )
    formats = {"chunks": ".0f", "seconds": ".2f", "times as long as the first": ".2f", "tokens/s": ".0f"}
    return markdown_table({"variant": ""} | formats | {"share of the peak": ".0%", "MiB": ".0f"}, rows)


def measure_step(benchmark: StepBenchmark, variant: Variant, batch_size: int) -> Step:
    """The median step of a new process; on a GPU, or compiled, after one that prepares."""
    if variant == "one_core":
        torch.set_num_threads(1)
    if variant in ("one_core", "pytorch_attention"):
        attention_hmde.attention_by_products = attention_hmde.sdpa  # type: ignore[assignment]
    dtype = torch.float32 if variant == "float32" else dtype_of("auto")
    accelerator = Accelerator(mixed_precision="bf16" if dtype == torch.bfloat16 else "no")
    model = make_model(benchmark, "sdpa" if variant == "padded" else None)
    model.get_input_embeddings().requires_grad_(False)
    if variant == "compiled":
        model.hmde.sentence_encoder.compile(dynamic=True)
    encoder = TwoPathEncoder(model)
    optimizer = torch.optim.AdamW(weight for weight in encoder.parameters() if weight.requires_grad)
    encoder, optimizer = accelerator.prepare(encoder.train(), optimizer)
    batch = random_batch(model.config, batch_size, benchmark.max_sentences, accelerator.device)
    terms = [InfoNCE(hard_negatives="all"), Queries(hard_negatives="all")]

    def losses(embeddings: Embeddings) -> dict[str, Tensor]:
        return weighted_losses(BatchVectors(embeddings, batch, model.config.temperature), terms)

    chunks = cut_into_chunks(batch.rows, benchmark.max_tokens_per_chunk)
    tokens = int(sum(rows["attention_mask"].sum() for rows in batch.rows.values()))
    flops = sum(model_flops(model, rows, kind == DOCUMENTS) for kind, rows in batch.rows.items())
    peak = matmul_peak(dtype)

    def step() -> float:
        with timed() as taken:
            backward_through_chunks(accelerator, encoder, chunks, losses)
            optimizer.step()
            optimizer.zero_grad()
        return taken.seconds

    if accelerator.device.type == "cuda" or variant == "compiled":
        step()
    with peak_memory() as memory:
        seconds = statistics.median(step() for _ in range(benchmark.steps))
    return Step(seconds, len(chunks), tokens, flops / seconds / peak, memory.peak)


def make_model(benchmark: StepBenchmark, attention: str | None) -> HMDEForDocumentEmbedding:
    options: dict[str, Any] = {
        "sentence_pooling": "mean",
        "document_norm": "pre",
        "document_pooling": "token_mean",
        "max_sentences": benchmark.max_sentences,
        "passage_length": benchmark.passage_length,
    }
    if attention is not None:
        options["attn_implementation"] = attention
    if benchmark.sentence_encoder is not None:
        return HMDEForDocumentEmbedding.from_sentence_encoder(
            benchmark.sentence_encoder, dtype=torch.float32, **options
        )
    sizes = {"vocab_size": 250_002, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    sentence_config = BertConfig(**(SIZES[benchmark.size] | sizes))
    return HMDEForDocumentEmbedding(HMDEConfig(sentence_config=sentence_config, **options))


def random_batch(config: HMDEConfig, batch_size: int, max_sentences: int, device: torch.device) -> Batch:
    """Anchors, positives, negatives and queries of random tokens, the same at each call."""
    generator = torch.Generator().manual_seed(0)

    def draw(low: int, high: int, count: int) -> list[int]:
        return torch.randint(low, high, (count,), generator=generator).tolist()

    def rows(sentence_counts: list[int]) -> dict[str, torch.Tensor]:
        texts, sentences = [], []
        for num_sentences in sentence_counts:
            lengths = draw(6, 43, num_sentences)
            texts.append(torch.tensor(draw(config.pad_token_id + 1, config.sentence_config.vocab_size, sum(lengths))))
            sentences.append(torch.arange(num_sentences).repeat_interleave(torch.tensor(lengths)))
        ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=config.pad_token_id)
        sentence_ids = torch.nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=-1)
        columns = {"input_ids": ids, "attention_mask": (sentence_ids >= 0).long(), "sentence_ids": sentence_ids}
        return {name: column.to(device) for name, column in columns.items()}

    concepts = torch.arange(batch_size, device=device)
    return Batch(
        {QUERIES: rows([1] * batch_size), DOCUMENTS: rows(draw(1, max_sentences + 1, 3 * batch_size))},
        {"anchor": concepts, "positive": concepts, "negative": concepts + batch_size},
        [str(triple) for triple in range(batch_size)],
    )


def model_flops(model: HMDEForDocumentEmbedding, rows: Rows, document_path: bool) -> int:
    """Floating point operations of some rows, forward and backward, by the usual rule: two for each weight of a linear
    layer and each position going forward, two more going back through it, and two for its own gradient. A part of which
    nothing is trained has no backward pass.

    The second forward pass of cached gradients, lookups and attention scores do not count.

    Args:
        rows: token ids.
        document_path: whether the rows pass the document encoder too.
    """
    flops = int(rows["attention_mask"].sum()) * flops_per_position(model.hmde.sentence_encoder)
    if document_path:
        num_sentences = int((rows["sentence_ids"].amax(dim=1) + 1).sum())
        flops += (num_sentences + len(rows["input_ids"])) * flops_per_position(model.hmde.document_encoder)
    return flops


def flops_per_position(part: nn.Module) -> int:
    """Floating point operations of one position that passes a part of a model, forward and backward."""
    matrices = [layer.weight for layer in part.modules() if isinstance(layer, nn.Linear)]
    through = 4 if any(weight.requires_grad for weight in matrices) else 2
    return sum((through + 2 * weight.requires_grad) * weight.numel() for weight in matrices)


if __name__ == "__main__":
    run(main)
