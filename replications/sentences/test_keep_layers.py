"""Which layers of an encoder are kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from replications.sentences.encoder import keep_layers


def encoder_of_three_layers() -> Any:
    """With another list of modules beside its layers, as encoders with adapters or several embeddings have."""
    encoder: Any = nn.Module()
    encoder.embeddings = nn.ModuleList(nn.Embedding(4, 2) for _ in range(2))
    encoder.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    encoder.config = SimpleNamespace(num_hidden_layers=3)
    return encoder


def test_layers_that_cannot_be_told_from_another_list_are_left_as_they_are() -> None:
    encoder = encoder_of_three_layers()
    encoder.embeddings.append(nn.Embedding(4, 2))
    with pytest.raises(ValueError, match="the 3 layers of Module are not in one list; keep them all"):
        keep_layers(encoder, [0])


def test_the_layers_that_are_named_stay_in_their_order_and_nothing_else_changes() -> None:
    encoder = encoder_of_three_layers()
    first, _, last = encoder.layers
    keep_layers(encoder, [0, 2])
    assert [*encoder.layers] == [first, last]
    assert len(encoder.embeddings) == 2
    assert encoder.config.num_hidden_layers == 3


@pytest.mark.parametrize("layers", [[3], [-1], [0, 5]])
def test_layers_that_the_encoder_does_not_have_are_refused(layers: list[int]) -> None:
    encoder = encoder_of_three_layers()
    with pytest.raises(ValueError, match=r"the encoder has 3 layers; name some from 0 to 2"):
        keep_layers(encoder, layers)
    assert len(encoder.layers) == 3


@pytest.mark.parametrize("layers", [[0, 0], [2, 1, 2]])
def test_a_layer_that_is_named_twice_is_refused(layers: list[int]) -> None:
    encoder = encoder_of_three_layers()
    with pytest.raises(ValueError, match=r"layers is \[.*\], which names a layer twice; name each once"):
        keep_layers(encoder, layers)
    assert len(encoder.layers) == 3
