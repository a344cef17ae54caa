"""The recipe of a pretraining run on triples of documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from hmde.common.numbers import Share
from training.data.queries import QueryDraw
from training.lora import Lora
from training.losses import InfoNCE, Losses, check_losses
from training.train import TrainOptions


@dataclass(kw_only=True)
class PretrainRecipe(TrainOptions):
    """A pretraining run on triples of documents. The defaults are the paper's."""

    corpus: str
    """Folder that `python -m training.corpus` wrote."""

    sentence_encoder: str = "sentence-transformers/LaBSE"
    """Hub name or folder of the encoder to start from; or of an HMDE, to train that one further."""

    architecture: dict[str, Any] = field(default_factory=dict)
    """Fields of HMDEConfig that differ from its defaults, which are the paper's, or from those of the HMDE."""

    tokenizer: dict[str, bool | int | str | None] = field(default_factory=dict)
    """Options of HMDETokenizer that differ from its defaults."""

    sentence_dropout: Share | None = None
    """Dropout inside the sentence encoder; its own if not given. On CPUs, 0 makes training about twice as fast."""

    freeze: Literal["nothing", "word_embeddings", "sentence_encoder"] = "nothing"
    """What is not trained. Frozen word_embeddings spare their large gradient, and languages outside the corpus stay
    where they are. With a frozen sentence_encoder (paper, table 3), its sentence vectors are computed once, without
    dropout, and kept in `<corpus>-sentence-vectors` for all runs."""

    lora: Lora | None = None
    """Train an adapter of the sentence encoder in place of its weights. It is merged into the finished model."""

    queries: QueryDraw = field(default_factory=QueryDraw)
    """What the queries are that `losses.queries` reads."""

    losses: Losses = field(default_factory=lambda: Losses(info_nce=InfoNCE()))
    """What the model is trained towards: the losses by name, each with its options. A loss that is null is left out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_losses(self.losses.chosen)
        if self.lora is not None and self.freeze == "sentence_encoder":
            raise ValueError("lora trains the sentence_encoder, and freeze leaves it as it is; leave one of them out")
