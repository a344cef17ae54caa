"""A loss or a gradient that is not finite stops a run. The error names the examples that it comes from."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from training.loop.cached_gradients import Embeddings

WAY_OUT = (
    "Look at these examples, lower the learning rate or raise the precision, and start anew under another output, "
    "since a resumed run would come to the same"
)


def check_losses(losses: dict[str, Tensor], embeddings: Embeddings, names: Sequence[str]) -> None:
    """
    Args:
        losses: of a batch, by name.
        embeddings: that they were made of: row i belongs to example i, modulo the number of examples.
        names: of the examples.

    Raises:
        FloatingPointError: a loss is not finite; names the examples whose embeddings are not, or else all.
    """
    not_finite = [f"{name} is {loss.item()}" for name, loss in losses.items() if not loss.isfinite()]
    if not not_finite:
        return
    rows = [vectors.isfinite().all(dim=1).view(-1, len(names)).all(dim=0) for vectors in embeddings.values()]
    bad = [name for name, *finite in zip(names, *(row.tolist() for row in rows)) if not all(finite)]
    where = (
        f"a batch in which the embeddings of {'; '.join(bad)} are not finite"
        if bad
        else f"the batch of {'; '.join(names)}"
    )
    raise FloatingPointError(f"{', '.join(not_finite)} in {where}. {WAY_OUT}")


def check_grad_norm(grad_norm: float, names: Sequence[str]) -> None:
    """
    Args:
        grad_norm: of an optimizer step.
        names: of the examples of the step.

    Raises:
        FloatingPointError: the gradient is not finite.
    """
    if not math.isfinite(grad_norm):
        raise FloatingPointError(f"the gradient's norm is {grad_norm} after the batch of {'; '.join(names)}. {WAY_OUT}")
