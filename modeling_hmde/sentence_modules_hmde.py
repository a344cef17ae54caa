"""What follows the pooling in a sentence encoder: (sentences, width) -> (sentences, other width), by a dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers.modeling_utils import load_state_dict
from transformers.utils import cached_file

from .pipeline_hmde import Pipeline


class Dense(nn.Module):
    """activation(Wx + b). With `residual`, x is added, by a matrix of its own where its size is another."""

    def __init__(self, in_features: int, out_features: int, bias: bool, activation: str, residual: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=bias)
        self.activation = getattr(nn, activation)()
        self.add_input = residual
        if residual and in_features != out_features:
            self.residual = nn.Linear(in_features, out_features, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        projected = self.activation(self.linear(vectors))
        if not self.add_input:
            return projected
        return projected + (self.residual(vectors) if hasattr(self, "residual") else vectors)


class LayerNorm(nn.Module):
    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dimension)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.norm(vectors)


class Normalize(nn.Module):
    """Each vector at unit length."""

    def forward(self, vectors: Tensor) -> Tensor:
        return nn.functional.normalize(vectors, dim=-1)


class Truncate(nn.Module):
    """The first `size` numbers of each vector, or all where it has fewer."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, vectors: Tensor) -> Tensor:
        return vectors[..., : self.size]


# By the types of `MODULE_FIELDS`. Weights have the names that sentence-transformers gives them.
MODULES: dict[str, type[nn.Module]] = {
    "dense": Dense,
    "layer_norm": LayerNorm,
    "dropout": nn.Dropout,
    "normalize": Normalize,
    "truncate": Truncate,
}


def make_modules(specifications: Sequence[dict[str, Any]]) -> nn.Sequential:
    """The modules of `sentence_modules` of HMDEConfig, which has checked them."""
    fields = ({name: value for name, value in module.items() if name != "type"} for module in specifications)
    return nn.Sequential(*(MODULES[module["type"]](**own) for module, own in zip(specifications, fields)))


def load_weights(modules: nn.Sequential, name_or_path: str, pipeline: Pipeline) -> None:
    """Load the weights of a pipeline's own modules.

    Raises:
        ValueError: a module's weights are missing.
    """
    for module, folder in zip(modules, pipeline.folders):
        if not [*module.parameters()]:
            continue
        file: Any = partial(cached_file, name_or_path, subfolder=folder, _raise_exceptions_for_missing_entries=False)
        path = file("model.safetensors") or file("pytorch_model.bin")
        if path is None:
            raise ValueError(f"{name_or_path}/{folder} has no weights; download or copy the encoder again")
        module.load_state_dict(load_state_dict(path))
