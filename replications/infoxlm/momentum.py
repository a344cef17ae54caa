"""A momentum encoder, and the queue of vectors it has made of earlier batches (MoCo; InfoXLM, section 3.2)."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from training.loop.checkpoints import frozen_weights
from training.loop.distributed import follow
from training.loop.processes import rows_of_all_processes


class MomentumQueue:
    """The last vectors that the momentum encoder has made, the same on every process.

    Args:
        encoder: before it is distributed; the momentum encoder starts as its copy.
        size: vectors at most; the queue fills up over the first batches.
        hidden_size: width of the vectors.
        momentum: share of its weights that the momentum encoder keeps at each step.
        device: of the encoder and the vectors.
    """

    def __init__(self, encoder: nn.Module, size: int, hidden_size: int, momentum: float, device: torch.device) -> None:
        self.frozen = set(frozen_weights(encoder))
        self.encoder = copy.deepcopy(encoder).requires_grad_(False).to(device).eval()
        self.size = size
        self.momentum = momentum
        self.vectors = torch.empty(0, hidden_size, device=device)
        self.concepts = torch.empty(0, dtype=torch.long, device=device)

    def push(self, vectors: Tensor, concepts: Tensor) -> None:
        """Add the vectors (rows, hidden) of all processes, and their concepts (rows,), the newest last."""
        self.vectors = torch.cat([self.vectors, rows_of_all_processes(vectors.detach().float())])[-self.size :]
        self.concepts = torch.cat([self.concepts, rows_of_all_processes(concepts)])[-self.size :]

    def after_step(self, encoder: nn.Module) -> None:
        """The momentum encoder follows the trained one, after each optimizer step."""
        follow(self.encoder, encoder, self.momentum)

    def state_dict(self) -> dict[str, Any]:
        """Without the weights that are not trained: they never differ from those of the start."""
        weights = {name: weight for name, weight in self.encoder.state_dict().items() if name not in self.frozen}
        return {"encoder": weights, "vectors": self.vectors, "concepts": self.concepts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.encoder.load_state_dict(state["encoder"], strict=False)
        self.vectors = state["vectors"].to(self.vectors.device)
        self.concepts = state["concepts"].to(self.concepts.device)
