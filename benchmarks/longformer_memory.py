"""How the memory of a forward pass grows with a document's length: a Longformer beside full attention.

    python benchmarks/longformer_memory.py

Both have LaBSE's shape (12 layers of width 768, without its vocabulary) and random weights; full attention is computed
as the paper's time did, with the matrix of all pairs. Memory: the most that the pass held at once beyond the weights,
as PyTorch's allocator counts it on a GPU and as the system counts it in a process of its own elsewhere. Prints a
Markdown table.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import Any

import psutil
import torch
from transformers import BertConfig, BertModel, LongformerConfig, LongformerModel

LENGTHS = (1024, 2048, 4096)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def build(kind: str) -> torch.nn.Module:
    sizes: dict[str, Any] = {"vocab_size": 1000, "max_position_embeddings": max(LENGTHS) + 2, "pad_token_id": 1}
    if kind == "longformer":
        return LongformerModel(LongformerConfig(**sizes, attention_window=512))
    config = BertConfig(**sizes)
    config._attn_implementation = "eager"
    return BertModel(config)


def mebibytes(kind: str, length: int) -> float:
    """Of one forward pass over one document."""
    model = build(kind).eval().to(DEVICE)
    ids = torch.full((1, length), 5, device=DEVICE)
    with torch.inference_mode():
        model(input_ids=ids[:, :512])  # what every length needs once
        before = held()
        model(input_ids=ids)
    return (peak() - before) / 2**20


def held() -> int:
    """Bytes now."""
    return torch.cuda.memory_allocated() if DEVICE == "cuda" else psutil.Process().memory_info().rss


def peak() -> int:
    """The most bytes so far."""
    if DEVICE == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    print("| tokens | full attention, MiB | Longformer, MiB |\n|---:|---:|---:|")
    for length in LENGTHS:
        cells = []
        for kind in ("full", "longformer"):
            command = [sys.executable, __file__, kind, str(length)]
            cells.append(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
        print(f"| {length} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(f"{mebibytes(sys.argv[1], int(sys.argv[2])):.0f}")
    else:
        main()
