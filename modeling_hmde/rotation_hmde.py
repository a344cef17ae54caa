"""The last step of a model that is rotated: all its vectors are turned, so that their first numbers tell most."""

from __future__ import annotations

from torch import nn

from .configuration_hmde import HMDEConfig


class Rotation(nn.Linear):
    """An orthogonal matrix, which leaves cosines as they are. It starts as the identity."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__(config.hidden_size, config.hidden_size, bias=False)
