"""What every training on pairs of sentences shares: its options, and its stage, which is given encoder, batches and
losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor

from hmde.common.numbers import NonNegativeFloat, PositiveInt, Share
from replications.sentences.batches import SentenceBatch, SentenceCollator
from replications.sentences.encoder import SentenceEncoder
from replications.sentences.losses import PairVectors, Teacher
from replications.sentences.pairs import DevPairs, Pairs
from training.data.batches import Batches
from training.loop.cached_gradients import Embeddings
from training.loop.loop import Stage
from training.loop.meter import Work
from training.loop.optimizer import groups_by_decay
from training.loop.options import LoopOptions


@dataclass(kw_only=True)
class PairsOptions(LoopOptions):
    """What every training on pairs of sentences is told. Each loss keeps its own options beside it."""

    corpus: str
    """Folder of parallel text: `pairs/<one>-<other>.parquet`, see replications/sentences/pairs.py."""

    max_length: PositiveInt = 128
    """Tokens of a row at most, with its special tokens. A longer one is cut."""

    language_exponent: NonNegativeFloat = 0.7
    """A pair of languages with n pairs of sentences is drawn with a chance in proportion to n to this power. The
    default is InfoXLM's (Chi et al., 2021)."""

    adam_beta2: Share = 0.999
    """Second beta of AdamW (T-MDE: 0.98)."""

    eval_pairs: PositiveInt = 1000
    """Dev pairs of each pair of languages, at most, in which translations are sought."""


def sentence_stage(
    options: PairsOptions,
    accelerator: Accelerator,
    *,
    pairs: Pairs,
    encoder: SentenceEncoder,
    collate: SentenceCollator,
    losses: Callable[[PairVectors], dict[str, Tensor]],
    teacher: Teacher | None = None,
) -> Stage[SentenceBatch]:
    """
    Args:
        pairs: what is trained on.
        encoder: what is trained, in the state in which it starts.
        collate: from some pairs to their batch.
        losses: from what the encoder makes of a batch to its weighted losses, by name.
        teacher: if there is a loss for its vectors.

    Raises:
        ValueError: there are no dev pairs, or fewer pairs than a batch has.
    """
    dev_pairs = DevPairs(options.corpus, options.eval_pairs, options.seed)
    batches = Batches(
        pairs,
        collate,
        accelerator,
        batch_size=options.batch_size,
        accumulation=options.gradient_accumulation_steps,
        language_exponent=options.language_exponent,
        seed=options.seed,
        num_workers=options.num_workers,
    )
    set_seed(options.seed, device_specific=True)  # dropout of its own for each process, from here on

    def batch_losses(embeddings: Embeddings, batch: SentenceBatch) -> dict[str, Tensor]:
        return losses(PairVectors(embeddings, batch))

    def work(batch: SentenceBatch) -> Work:
        tokens = sum(int(rows["attention_mask"].sum()) for rows in batch.rows.values())
        return Work(len(batch.names), tokens)

    def score(encoder: Any) -> dict[str, float]:
        def encode(sentences: list[str]) -> Any:
            texts = [collate.prompt + sentence for sentence in sentences]
            return encoder.encode(texts, collate.tokenizer, collate.max_length, options.max_tokens_per_chunk)

        return dev_pairs.evaluate(encode)

    def save(encoder: Any, folder: Path) -> None:
        encoder.save(folder)
        collate.tokenizer.save_pretrained(folder)

    betas = (0.9, options.adam_beta2)
    return Stage(
        encoder=encoder,
        parameter_groups=groups_by_decay(encoder, options.learning_rate, options.weight_decay, betas=betas),
        batches=batches,
        losses=batch_losses,
        work=work,
        evaluate=score,
        criterion="p_at_1",
        save=save,
        fingerprints={} if teacher is None else {"files of the teacher": teacher.fingerprint},
    )
