"""The stage of every training on pairs of sentences, from what differs between them: encoder, batches and losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import send_to_device, set_seed
from torch import Tensor, nn

from training.data.batches import Batches
from training.loop.cached_gradients import Embeddings
from training.loop.checkpoints import describe_run
from training.loop.loop import Stage, total_steps
from training.loop.meter import Work
from training.loop.momentum import MomentumQueue
from training.models import flops_per_position
from training.sentences.batches import SentenceBatch, SentenceCollator
from training.sentences.encoder import SentenceEncoder
from training.sentences.losses import PairVectors, Teacher
from training.sentences.pairs import DevPairs, Pairs
from training.sentences.recipe import PairsOptions


def sentence_stage(
    options: PairsOptions,
    accelerator: Accelerator,
    *,
    pairs: Pairs,
    encoder: SentenceEncoder,
    collate: SentenceCollator,
    losses: Callable[[PairVectors], dict[str, Tensor]],
    teacher: Teacher | None = None,
    queue: MomentumQueue | None = None,
    evaluate: Callable[[Any, SentenceCollator, DevPairs], dict[str, float]] | None = None,
    criterion: str = "p_at_1",
) -> Stage[SentenceBatch]:
    """
    Args:
        pairs: what is trained on.
        encoder: what is trained, in the state in which it starts.
        collate: from some pairs to their batch.
        losses: from what the encoder makes of a batch to its weighted losses, by name.
        teacher: an encoder whose vectors are learned, if there is a loss for them.
        queue: the `keys` of earlier batches, if there is a loss for them.
        evaluate: scores of an encoder on the dev pairs, by name; P@1 if not given.
        criterion: the score by which the best step is chosen.

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

    def batch_losses(embeddings: Embeddings, batch: SentenceBatch, keys: Embeddings | None) -> dict[str, Tensor]:
        teacher_embeddings = teacher.embeddings(batch) if teacher is not None else {}
        weighted = losses(PairVectors(embeddings | teacher_embeddings | (keys or {}), batch))
        if queue is not None and keys is not None:
            queue.push(keys["keys"], batch.concepts)  # after the loss, in which they stand already
        return weighted

    def work(batch: SentenceBatch) -> Work:
        tokens = sum(int(rows["attention_mask"].sum()) for rows in batch.rows.values())
        return Work(len(batch.names), tokens, tokens * flops_per_position(encoder.model.base_model))

    def validation_batches() -> Iterator[SentenceBatch]:
        examples = list(dev_pairs.examples())
        for first in range(0, len(examples), options.batch_size):
            yield send_to_device(collate(examples[first : first + options.batch_size]), accelerator.device)

    def score(encoder: Any) -> dict[str, float]:
        if evaluate is not None:
            return evaluate(encoder, collate, dev_pairs)

        def encode(sentences: list[str]) -> Any:
            texts = [collate.prompt + sentence for sentence in sentences]
            return encoder.encode(texts, collate.tokenizer, collate.max_length, options.max_tokens_per_chunk)

        return dev_pairs.evaluate(encode)

    def save(encoder: Any, folder: Path) -> None:
        encoder.save(folder)
        collate.tokenizer.save_pretrained(folder)

    return Stage(
        encoder=encoder,
        parameter_groups=parameter_groups(encoder, options),
        total_steps=total_steps(options, batches.steps_per_epoch),
        batches=batches.from_step,
        losses=batch_losses,
        work=work,
        evaluate=score,
        criterion=criterion,
        save=save,
        run=describe_run(asdict(options), pairs.fingerprint, accelerator.num_processes),
        validation_batches=validation_batches,
        queue=queue,
    )


def parameter_groups(encoder: nn.Module, options: PairsOptions) -> list[dict[str, Any]]:
    """Weight decay on matrices only."""
    groups: dict[float, list[nn.Parameter]] = {}
    for weight in encoder.parameters():
        if weight.requires_grad:
            groups.setdefault(options.weight_decay if weight.ndim > 1 else 0.0, []).append(weight)
    adam = {"lr": options.learning_rate, "betas": (0.9, options.adam_beta2), "eps": options.adam_epsilon}
    return [adam | {"params": weights, "weight_decay": decay} for decay, weights in groups.items()]
