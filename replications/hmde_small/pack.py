"""Write the difference between an HMDE and the sentence encoder that it was trained from.

    python -m replications.hmde_small.pack --model runs/hmde-trained --base runs/e5-small --output runs/release

hmde/release/difference.py says what is kept of which weight, and puts the model together again.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import hmde.common.threads

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig

from hmde.common.command_line import options_from, run
from hmde.common.files import check_is_new, folder_written_whole
from hmde.common.fingerprints import fingerprint_of_weights
from hmde.release.difference import DIFFERENCE, base_weights
from modeling_hmde import HMDEForDocumentEmbedding

ROTATION = "hmde.rotation.weight"  # rounded, it would no longer leave cosines as they are
BITS_OF_DIFFERENCE = 3
BITS_OF_NEW_MATRICES = 8
NUM_SCALES = 40  # that are tried for each row


@dataclass
class Pack:
    """Write the difference between an HMDE and the sentence encoder that it was trained from."""

    model: str
    """Folder of the HMDE."""

    base: str
    """Folder of the sentence encoder."""

    output: str
    """Folder to write."""


def main(argv: list[str] | None = None) -> None:
    options = options_from(Pack, argv)
    pack(options.model, options.base, options.output)


def pack(model: str, base: str, output: str) -> None:
    """
    Raises:
        ValueError: the HMDE has another architecture or vocabulary than the base, or no card, or the output exists.
    """
    check_is_new(output)
    if not (Path(model) / "README.md").is_file():
        raise ValueError(f"model {model} has no README.md, the card that says how it was trained; write one")
    trained = HMDEForDocumentEmbedding.from_pretrained(model, dtype=torch.float32)
    theirs, ours = AutoConfig.from_pretrained(base), trained.config.sentence_config
    for field in ("model_type", "hidden_size", "num_hidden_layers", "vocab_size"):
        if getattr(theirs, field) != getattr(ours, field):
            raise ValueError(f"{base} has another {field} than the HMDE; name the encoder that it was trained from")
    start = base_weights(trained.config, base)
    kept: dict[str, Tensor] = {}
    for name, weight in trained.state_dict().items():
        difference = weight - start[name] if name in start else weight
        if name in start and not difference.any():
            continue
        if weight.ndim < 2 or name == ROTATION:
            kept[name] = difference
            continue
        bits = BITS_OF_DIFFERENCE if name in start else BITS_OF_NEW_MATRICES
        levels, scales = quantise(difference, bits)
        kept[f"{name}.bits_{bits}"] = to_bits(levels, bits)
        kept[f"{name}.scales"] = scales
    with folder_written_whole(output) as folder:
        for name in ("config.json", "tokenizer_config.json", "README.md"):
            shutil.copy(Path(model) / name, folder)
        save_file(kept, folder / DIFFERENCE, metadata={"base_weights": fingerprint_of_weights(sorted(start.items()))})


def quantise(matrix: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """The nearest of 2 ** bits evenly spaced values, symmetric about 0, for each entry of a matrix.

    Returns:
        levels (rows, columns), uint8, from 0; and the distance between two values for each row, (rows,): the one with
        the least squared error among NUM_SCALES tried.
    """
    highest = 2**bits - 1
    largest = matrix.abs().amax(dim=1, keepdim=True) * 2 / highest
    best_error = torch.full((len(matrix),), torch.inf)
    levels, scales = torch.zeros_like(matrix), torch.zeros(len(matrix))
    for step in range(1, NUM_SCALES + 1):
        tried = (largest * step / NUM_SCALES).clamp_min(torch.finfo(torch.float32).tiny)
        rounded = (matrix / tried + highest / 2).round().clamp(0, highest)
        error = (((rounded - highest / 2) * tried - matrix) ** 2).sum(dim=1)
        better = error < best_error
        best_error[better], levels[better], scales[better] = error[better], rounded[better], tried[better, 0]
    return levels.to(torch.uint8), scales


def to_bits(levels: Tensor, bits: int) -> Tensor:
    """(rows, columns), below 2 ** bits -> (rows, ceil(columns * bits / 8)), uint8, bit after bit."""
    planes = np.unpackbits(levels.numpy()[..., None], axis=-1)[..., -bits:]
    return torch.from_numpy(np.packbits(planes.reshape(len(levels), -1), axis=1))


if __name__ == "__main__":
    run(main)
