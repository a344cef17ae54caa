"""A model kept as a small difference to the sentence encoder that it was trained from, and put together again.

Weights that training did not change are left out. A matrix of the sentence encoder is stored as its difference to the
base, with three bits a weight and a scale for each row: a short training moves each weight by a few steps of equal
size, so few bits hold most of the information (BitDelta keeps one bit; Liu et al. 2024). Matrices of the document
encoder have eight bits a weight. All other weights are stored as they are. `replications.hmde_small.pack` writes the
folder.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from hmde.common.files import folder_written_whole
from hmde.common.fingerprints import fingerprint_of_weights
from hmde.common.progress import progress_bar
from hmde.common.saved_models import tokenizer_options
from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDETokenizer

DIFFERENCE = "difference.safetensors"
SENTENCE_ENCODER = "hmde.sentence_encoder."


def put_together(output: str | Path, base: str | Path, difference: str | Path) -> None:
    """Write the model whose difference to a sentence encoder lies in a folder.

    Args:
        output: folder to write, whole or not at all; one that exists is replaced.
        base: folder of the sentence encoder.
        difference: folder that `replications.hmde_small.pack` wrote.

    Raises:
        ValueError: there is no base or no difference, or the difference was taken to another base.
    """
    difference = Path(difference)
    if not (Path(base) / "config.json").is_file():
        raise ValueError(f"base {base} has no config.json; make it with python -m hmde.release.e5")
    if not (difference / DIFFERENCE).is_file():
        raise ValueError(f"{difference} has no {DIFFERENCE}; name a folder of python -m replications.hmde_small.pack")
    config = HMDEConfig.from_pretrained(difference)
    model = HMDEForDocumentEmbedding(config)
    model.load_state_dict(weights_of(model, str(base), difference))
    tokenizer = HMDETokenizer.from_sentence_encoder(str(base), **saved_tokenizer_options(difference))
    with folder_written_whole(output) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        shutil.copy(difference / "README.md", folder)


def weights_of(model: HMDEForDocumentEmbedding, base: str, difference: Path) -> dict[str, Tensor]:
    """The weights of a model by their names: those of the base, and what the difference adds to them.

    Raises:
        ValueError: the difference was taken to another base.
    """
    weights = base_weights(model.config, base)
    with safe_open(difference / DIFFERENCE, "pt") as kept:
        if kept.metadata()["base_weights"] != fingerprint_of_weights(sorted(weights.items())):
            raise ValueError(f"{difference} is the difference to other weights than those of {base}; name that base")
        names = [name for name in kept.keys() if not name.endswith(".scales")]  # noqa: SIM118, which is no dictionary
        with progress_bar("putting the model together", len(names), unit="weight") as bar:
            for name in names:
                weight_name, _, bits = name.partition(".bits_")
                added = kept.get_tensor(name)
                if bits:
                    columns = model.get_parameter(weight_name).shape[1]
                    added = dequantise(added, kept.get_tensor(f"{weight_name}.scales"), int(bits), columns)
                weights[weight_name] = weights[weight_name] + added if weight_name in weights else added
                bar.update()
    return weights


def base_weights(config: HMDEConfig, base: str) -> dict[str, Tensor]:
    """The weights of the sentence encoder below an HMDE before it was trained, by their names in the HMDE."""
    model = HMDEForDocumentEmbedding.from_sentence_encoder(
        base,
        dtype=torch.float32,
        sentence_pooling=config.sentence_pooling,
        sentence_modules=config.sentence_modules,
    )
    return {name: weight for name, weight in model.state_dict().items() if name.startswith(SENTENCE_ENCODER)}


def dequantise(packed: Tensor, scales: Tensor, bits: int, columns: int) -> Tensor:
    """What `quantise` and `to_bits` made, as a matrix (rows, columns) again."""
    planes = np.unpackbits(packed.numpy(), axis=1, count=columns * bits).reshape(len(packed), columns, bits)
    levels = np.packbits(planes, axis=-1)[..., 0] >> (8 - bits)
    return (torch.from_numpy(levels).float() - (2**bits - 1) / 2) * scales[:, None]


def saved_tokenizer_options(folder: Path) -> dict[str, Any]:
    """The options of a saved HMDETokenizer, such as its prompts."""
    written = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    return {name: written[name] for name in tokenizer_options() if name in written}
