"""The released model, kept as a small difference to the encoder that it was trained from.

    python -m release_tools.pack unpack --output runs/hmde-small
    python -m release_tools.pack pack --model runs/hmde-trained --base runs/e5-small --output runs/release

`unpack` puts the model together from the folder `release` of this repository and multilingual-e5-small, without a
network. `pack` writes such a folder for any HMDE and the sentence encoder that it was trained from. Weights that
training did not change are left out. A matrix of the sentence encoder is stored as its difference to the base, with
three bits a weight and a scale for each row: a short training moves each weight by a few steps of equal size, so few
bits hold most of the information (BitDelta keeps one bit; Liu et al. 2024). Matrices of the document encoder have eight
bits a weight. All other weights are stored as they are.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common.terminal
import common.threads

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from common.command_line import options_from, run
from common.files import check_is_new, folder_written_whole
from common.fingerprints import fingerprint_of_weights
from common.saved_models import tokenizer_options
from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDETokenizer

RELEASE = Path(__file__).parents[1] / "release"
DIFFERENCE = "difference.safetensors"
SENTENCE_ENCODER = "hmde.sentence_encoder."
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


@dataclass
class Unpack:
    """Put the released model together."""

    output: str
    """Folder to write."""

    base: str = "runs/e5-small"
    """Folder of the sentence encoder, which `python -m release_tools.unpack_e5` writes."""

    release: str = str(RELEASE)
    """Folder that `pack` wrote."""


def main(argv: list[str] | None = None) -> None:
    options = options_from({"pack": Pack, "unpack": Unpack}, argv, description=__doc__)
    if isinstance(options, Pack):
        pack(options.model, options.base, options.output)
    else:
        unpack(options.output, options.base, options.release)
        print(f"wrote {options.output}")


def pack(model: str, base: str, output: str) -> None:
    """
    Raises:
        ValueError: the HMDE has another architecture or vocabulary than the base, or no card, or the output exists.
    """
    check_is_new(output)
    if not (Path(model) / "README.md").is_file():
        raise ValueError(f"model {model} has no README.md, the card that says how it was trained; write one")
    trained = HMDEForDocumentEmbedding.from_pretrained(model, dtype=torch.float32)
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


def unpack(output: str, base: str, release: str) -> None:
    """
    Raises:
        ValueError: there is no base or no difference, or the difference was taken to another base.
    """
    if not (Path(base) / "config.json").is_file():
        raise ValueError(f"base {base} has no config.json; make it with python -m release_tools.unpack_e5")
    if not (Path(release) / DIFFERENCE).is_file():
        raise ValueError(f"release {release} has no {DIFFERENCE}; name a folder of python -m release_tools.pack pack")
    check_is_new(output)
    config = HMDEConfig.from_pretrained(release)
    model = HMDEForDocumentEmbedding(config)
    weights = base_weights(config, base)
    with safe_open(Path(release) / DIFFERENCE, "pt") as kept:
        if kept.metadata()["base_weights"] != fingerprint_of_weights(sorted(weights.items())):
            raise ValueError(f"{release} is the difference to other weights than those of {base}; name those as base")
        for name in kept.keys():  # noqa: SIM118, which is no dictionary
            if name.endswith(".scales"):
                continue
            weight_name, _, bits = name.partition(".bits_")
            difference = kept.get_tensor(name)
            if bits:
                columns = model.get_parameter(weight_name).shape[1]
                difference = dequantise(difference, kept.get_tensor(f"{weight_name}.scales"), int(bits), columns)
            weights[weight_name] = weights[weight_name] + difference if weight_name in weights else difference
    model.load_state_dict(weights)
    options: dict[str, Any] = saved_tokenizer_options(Path(release))
    tokenizer = HMDETokenizer.from_sentence_encoder(base, **options)
    with folder_written_whole(output) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        shutil.copy(Path(release) / "README.md", folder)


def base_weights(config: HMDEConfig, base: str) -> dict[str, Tensor]:
    """The weights of the sentence encoder below an HMDE before it was trained, by their names in the HMDE.

    Raises:
        ValueError: the encoder in `base` has another architecture or vocabulary than the HMDE's.
    """
    model = HMDEForDocumentEmbedding.from_sentence_encoder(
        base,
        dtype=torch.float32,
        sentence_pooling=config.sentence_pooling,
        sentence_modules=config.sentence_modules,
        sentence_layer=config.sentence_layer,
    )
    theirs, ours = model.config.sentence_config, config.sentence_config
    for field in ("model_type", "hidden_size", "num_hidden_layers", "vocab_size"):
        if getattr(theirs, field) != getattr(ours, field):
            raise ValueError(f"{base} has another {field} than the HMDE; name the encoder that it was trained from")
    return {name: weight for name, weight in model.state_dict().items() if name.startswith(SENTENCE_ENCODER)}


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


def dequantise(packed: Tensor, scales: Tensor, bits: int, columns: int) -> Tensor:
    """What `quantise` and `to_bits` made, as a matrix (rows, columns) again."""
    planes = np.unpackbits(packed.numpy(), axis=1, count=columns * bits).reshape(len(packed), columns, bits)
    levels = np.packbits(planes, axis=-1)[..., 0] >> (8 - bits)
    return (torch.from_numpy(levels).float() - (2**bits - 1) / 2) * scales[:, None]


def saved_tokenizer_options(release: Path) -> dict[str, object]:
    """The options of a saved HMDETokenizer, such as its prompts."""
    written = json.loads((release / "tokenizer_config.json").read_text(encoding="utf-8"))
    return {name: written[name] for name in tokenizer_options() if name in written}


if __name__ == "__main__":
    run(main)
