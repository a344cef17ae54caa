"""Vectors of sentences from the pass that makes the document's: the smaller of the two scales.

A sentence encoder that reads a passage mixes its sentences, so that the last hidden states of a sentence hold much of
its neighbours. Its lower layers still hold what is its own. A linear map of the mean hidden states of all layers finds
again, to a large part, the vector that the sentence has when it is read by itself, without reading it so.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import initialization as init

from .configuration_hmde import HMDEConfig


class SentenceHead(nn.Linear):
    """The mean hidden states of a sentence in all layers (sentences, (1 + layers) * width) -> its vector (sentences,
    hidden). At first it returns the mean hidden state of the last layer."""

    def __init__(self, config: HMDEConfig) -> None:
        layers = config.sentence_layer or config.sentence_config.num_hidden_layers
        self.width = config.sentence_config.hidden_size
        super().__init__((1 + layers) * self.width, config.hidden_size)

    def start(self) -> None:
        last_layer = torch.eye(self.out_features, self.width).to(self.weight)
        init.copy_(self.weight, nn.functional.pad(last_layer, (self.in_features - self.width, 0)))
        init.zeros_(self.bias)


class Rotation(nn.Linear):
    """Turns vectors so that their first numbers tell most: an orthogonal matrix, which leaves cosines as they are. It
    starts as the identity."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__(config.hidden_size, config.hidden_size, bias=False)

    def start(self) -> None:
        init.eye_(self.weight)
