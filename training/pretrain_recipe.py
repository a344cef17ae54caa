"""The recipe of a pretraining run on triples of documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from hmde.common.numbers import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from training.data.queries import QueryDraw
from training.loop.options import LoopOptions
from training.lora import Lora
from training.losses import InfoNCE, Losses


@dataclass(kw_only=True)
class PretrainRecipe(LoopOptions):
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
    """What the queries are that `losses.queries` and a teacher read."""

    losses: Losses = field(default_factory=lambda: Losses(info_nce=InfoNCE()))
    """What the model is trained towards: the losses by name, each with its options. A loss that is null is left out."""

    language_exponent: NonNegativeFloat = 1.0
    """A pair of languages with n triples is drawn with a chance in proportion to n to this power. 1 takes every triple
    once in an epoch; the authors' code has 0.3."""

    document_learning_rate: PositiveFloat | None = None
    """Learning rate of the new document encoder; `learning_rate` if not given."""

    eval_concepts: PositiveInt = 100
    """Size of the pool in which dev concepts are sought. Training concepts fill it up."""

    def __post_init__(self) -> None:
        super().__post_init__()
        losses = self.losses
        if losses == Losses():
            raise ValueError("losses has none, so that nothing is learned; give one, such as losses.info_nce.weight 1")
        if self.keep == "validation_loss" and losses == Losses(queue=losses.queue):
            raise ValueError("losses.queue has no part in the validation loss; add a loss, or choose another keep")
        if self.lora is not None and self.freeze == "sentence_encoder":
            raise ValueError("lora trains the sentence_encoder, and freeze leaves it as it is; leave one of them out")
        if losses.distillation is not None and self.freeze == "sentence_encoder":
            raise ValueError("a frozen sentence_encoder learns nothing of the teacher; leave freeze or the teacher out")
        if losses.late_interaction is not None and self.freeze == "sentence_encoder":
            raise ValueError(
                "losses.late_interaction reads the documents' sentences, and a frozen sentence_encoder keeps only "
                "their vectors; use freeze word_embeddings"
            )
