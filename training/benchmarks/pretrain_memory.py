"""Peak memory of a pretraining step by batch size: it is the chunk's, not the batch's.

    python -m training.benchmarks.pretrain_memory [--sentence_encoder intfloat/multilingual-e5-small]

Prints a table in Markdown. Each batch size is measured in a process of its own, on made-up documents.
"""

from __future__ import annotations

import functools
import multiprocessing
import resource
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate import Accelerator
from jsonargparse import auto_cli
from transformers import BertConfig

from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding
from training.cached_gradients import backward_through_chunks, cut_into_chunks
from training.data import Batch
from training.momentum import DocumentQueue
from training.pretrain import PretrainRecipe, TripleEncoder
from training.pretrain_objective import checked_objective


@dataclass
class MemoryBenchmark:
    """What is measured.

    Args:
        sentence_encoder: Hub name or folder; without one, a BERT of four layers with random weights.
        batch_sizes: triples of a batch.
        max_tokens_per_chunk: as in a pretraining recipe.
        sentences: of a document.
        sentence_length: tokens of a sentence.
    """

    sentence_encoder: str | None = None
    batch_sizes: list[int] = field(default_factory=lambda: [8, 64, 512])
    max_tokens_per_chunk: int = 1024
    sentences: int = 3
    sentence_length: int = 16


def main(argv: list[str] | None = None) -> None:
    benchmark = auto_cli(MemoryBenchmark, args=argv, as_positional=False)
    print("| triples in the batch | chunks | peak memory, MiB | seconds |\n|---:|---:|---:|---:|")
    spawn = multiprocessing.get_context("spawn")
    for batch_size in benchmark.batch_sizes:
        with spawn.Pool(1) as pool:
            chunks, mebibytes, seconds = pool.apply(measure, (benchmark, batch_size))
        print(f"| {batch_size} | {chunks} | {mebibytes:.0f} | {seconds:.1f} |", flush=True)


def measure(benchmark: MemoryBenchmark, batch_size: int) -> tuple[int, float, float]:
    """Chunks, peak memory in MiB (of the GPU, or of the process) and seconds of one step."""
    accelerator = Accelerator()
    if benchmark.sentence_encoder is None:
        sizes: dict[str, Any] = {
            "hidden_size": 256,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
        }
        model = HMDEForDocumentEmbedding(HMDEConfig(sentence_config=BertConfig(vocab_size=1000, **sizes)))
    else:
        model = HMDEForDocumentEmbedding.from_sentence_encoder(benchmark.sentence_encoder)
    encoder = TripleEncoder(model)
    optimizer = torch.optim.AdamW(weight for weight in encoder.parameters() if weight.requires_grad)
    encoder, optimizer = accelerator.prepare(encoder.train(), optimizer)
    batch = made_up_batch(model.config, batch_size, benchmark, accelerator.device)
    queue = DocumentQueue(0, model.config.hidden_size, 1, accelerator.device)
    recipe = PretrainRecipe(corpus="", output="", query_weight=1.0, hard_negatives="all")
    loss = functools.partial(
        checked_objective, batch=batch, recipe=recipe, temperature=model.config.temperature, keys=None, queue=queue
    )
    chunks = cut_into_chunks(batch.documents, batch.queries, benchmark.max_tokens_per_chunk)
    began = time.perf_counter()
    backward_through_chunks(accelerator, encoder, chunks, loss)
    optimizer.step()
    seconds = time.perf_counter() - began
    if accelerator.device.type == "cuda":
        return len(chunks), torch.cuda.max_memory_allocated() / 2**20, seconds
    return len(chunks), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, seconds


def made_up_batch(config: Any, batch_size: int, benchmark: MemoryBenchmark, device: torch.device) -> Batch:
    """A batch of random tokens."""
    torch.manual_seed(0)

    def rows(number: int, sentences: int) -> dict[str, torch.Tensor]:
        shape = (number, sentences, benchmark.sentence_length)
        ids = torch.randint(config.start_token_id + 1, config.sentence_config.vocab_size, shape, device=device)
        ids[:, :, 0] = config.start_token_id
        ids = ids.flatten(start_dim=1)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    concepts = torch.arange(batch_size, device=device)
    names = [str(number) for number in range(batch_size)]
    documents = rows(3 * batch_size, benchmark.sentences)
    return Batch(documents, rows(batch_size, 1), concepts, concepts + batch_size, concepts, names)


if __name__ == "__main__":
    main()
