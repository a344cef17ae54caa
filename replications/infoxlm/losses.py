"""InfoXLM's losses: MMLM, TLM and XlCo, each with its options."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from hmde.common.numbers import PositiveFloat, PositiveInt, Share
from replications.infoxlm.momentum import MomentumQueue
from replications.sentences.batches import IGNORED
from replications.sentences.losses import LossFunction, LossOptions, PairVectors
from training.loop.cached_gradients import embed_in_chunks
from training.loop.processes import mean_of_all_processes, rows_of_other_processes
from training.losses.candidates import same_concept


@dataclass(kw_only=True)
class MMLM(LossOptions):
    """Multilingual masked language modeling (equation 2)."""

    texts: str | None = None
    """Folder of `python -m training.corpus`, whose articles are the text; the sentences of the pairs, each by itself,
    if not given."""


@dataclass(kw_only=True)
class TLM(LossOptions):
    """Translation language modeling: masked language modeling of a sentence and its translation in one row."""


@dataclass(kw_only=True)
class XlCo(LossOptions):
    """Cross-lingual contrast (equation 6)."""

    temperature: PositiveFloat = 0.25
    """What inner products are divided by. The default is that of the authors' code."""

    mixup: bool = True
    """Join each pair with a pair of other languages (mixup contrast)."""

    queue_size: PositiveInt = 131_072
    """Number of keys of earlier batches, made by a momentum encoder, that are negatives."""

    queue_momentum: Share = 0.9999
    """Share of its weights that the momentum encoder keeps at each step (0.999 for a large model)."""


@dataclass(kw_only=True)
class InfoXLMLosses:
    """The losses whose weighted sum is minimised. One that is null is left out."""

    mmlm: MMLM | None = None
    """Masked tokens of one text are predicted."""

    tlm: TLM | None = None
    """Masked tokens of a sentence beside its translation are predicted."""

    xlco: XlCo | None = None
    """Translations are found among those of the batch and of a queue."""


def cross_lingual_contrast(
    queries: Tensor,
    keys: Tensor,
    others: Tensor,
    *,
    concepts: Tensor,
    other_concepts: Tensor,
    temperature: float,
) -> Tensor:
    """Cross-lingual contrast (equation 6): each query seeks the key of its translation.

    The authors' code divides inner products by a temperature of 0.25, and so does this, although the paper names none.
    Vectors are not normalised, in the paper as in the code, so that inner products are no cosines. A key of the query's
    own pair is never its negative.

    Args:
        queries: (pairs, hidden), of the trained encoder.
        keys: (pairs, hidden), of the momentum encoder. No gradient reaches them.
        others: (others, hidden), keys of other processes and of earlier batches.
        concepts: (pairs,), int64.
        other_concepts: (others,), int64.

    Returns:
        (pairs,)
    """
    logits = queries @ torch.cat([keys, others]).detach().T / temperature
    masked = same_concept(concepts, torch.cat([concepts, other_concepts]))
    own = torch.arange(len(queries), device=queries.device)
    masked[own, own] = False
    return F.cross_entropy(logits.masked_fill(masked, -torch.inf), own, reduction="none")


def masked_tokens_loss(name: str, vectors: PairVectors, options: MMLM | TLM) -> Tensor:
    """The mean over the masked tokens of all processes.

    Args:
        name: of the rows, `mmlm` or `tlm`.
    """
    count = (vectors.batch.rows[name]["labels"] != IGNORED).sum()
    return mean_of_all_processes(vectors.embeddings[name].squeeze(1), count)


def infoxlm_losses(
    queue: MomentumQueue | None, max_tokens: int, autocast: Callable[[], AbstractContextManager]
) -> dict[str, LossFunction]:
    """The functions of the losses, by name.

    Args:
        queue: keys of earlier batches, if there is a loss that reads them.
        max_tokens: that the momentum encoder embeds at once.
        autocast: the precision of the run, in which it embeds them.
    """

    def xlco_loss(vectors: PairVectors, options: XlCo) -> Tensor:
        """The mean over pairs."""
        assert queue is not None
        concepts = vectors.batch.concepts
        with autocast():
            keys = embed_in_chunks(queue.encoder, vectors.batch.other_rows, max_tokens)["keys"].float()
        loss = cross_lingual_contrast(
            vectors.embeddings["queries"].float(),
            keys,
            torch.cat([rows_of_other_processes(keys), queue.vectors]),
            concepts=concepts,
            other_concepts=torch.cat([rows_of_other_processes(concepts), queue.concepts]),
            temperature=options.temperature,
        ).mean()
        queue.push(keys, concepts)  # after the loss, in which they stand already
        return loss

    return {
        "mmlm": functools.partial(masked_tokens_loss, "mmlm"),
        "tlm": functools.partial(masked_tokens_loss, "tlm"),
        "xlco": xlco_loss,
    }
