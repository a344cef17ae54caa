"""Train an HMDE on triples of documents, from Python: `train`, which the command training/pretrain.py calls too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor

from hmde.common.numbers import NonNegativeFloat, PositiveFloat, PositiveInt
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from training.data.batches import Batch, Batches, collate
from training.data.dev_set import DevSet
from training.data.kinds import DOCUMENTS
from training.data.sentence_vectors import SentenceVectors, sentence_vectors
from training.data.triples import Triples
from training.encoder import TwoPathEncoder
from training.loop.cached_gradients import Embeddings
from training.loop.loop import Progress, Stage, train_stage
from training.loop.meter import Work
from training.loop.optimizer import groups_by_decay
from training.loop.options import LoopOptions
from training.lora import merged_weights
from training.losses import Loss, check_losses, weighted_losses
from training.losses.batch import BatchVectors


@dataclass(kw_only=True)
class TrainOptions(LoopOptions):
    """How an HMDE is trained on triples of documents."""

    language_exponent: NonNegativeFloat = 1.0
    """A pair of languages with n triples is drawn with a chance in proportion to n to this power. 1 takes every triple
    once in an epoch; the authors' code has 0.3."""

    document_learning_rate: PositiveFloat | None = None
    """Learning rate of the new document encoder; `learning_rate` if not given."""

    eval_concepts: PositiveInt = 100
    """Size of the pool in which dev concepts are sought. Training concepts fill it up."""


def train(
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    triples: Triples,
    losses: Sequence[Loss],
    options: TrainOptions,
    write_card: Callable[[Any, Path, Progress], None] | None = None,
) -> Progress:
    """Train a model towards the weighted sum of some losses, and write the best one to the folder `options.output`.

    Weights that do not require gradients stay as they are. If those of the sentence encoder are all among them, its
    vectors are computed once and kept in `<folder of the triples>-sentence-vectors`.

    Args:
        model: is changed.
        triples: what is trained on. Their folder has a dev split too, by which the best model is chosen.
        write_card: writes the README.md of the finished folder, from the options, the folder and the progress.

    Returns:
        What was measured, step by step.

    Raises:
        ValueError: there is no loss, the triples lack what one needs, the output is there already, or there is nothing
            to resume from.
    """
    make_stage = functools.partial(document_stage, model, tokenizer, triples, losses)
    return train_stage(options, make_stage, write_card)


def document_stage(
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    triples: Triples,
    losses: Sequence[Loss],
    options: TrainOptions,
    accelerator: Accelerator,
) -> Stage[Batch]:
    """What is trained, on what data, towards which losses. See `train`."""
    frozen = not any(weight.requires_grad for weight in model.hmde.sentence_encoder.parameters())
    needs = check_losses(losses)
    if needs.symmetric and "positive_negative" not in triples.roles:
        raise ValueError("a loss is symmetric; give Triples symmetric=True, so that positives have a hard negative too")
    dev_set = DevSet(triples.articles, options.eval_concepts, options.seed)
    prepare(model, options)
    set_seed(options.seed, device_specific=True)  # dropout of its own for each process, from here on
    make_batch = functools.partial(
        collate,
        roles=triples.roles,
        tokenizer=tokenizer,
        query_path=(triples.queries.path or model.config.query_path) if needs.queries else None,
        sentence_vectors=kept_sentence_vectors(triples, accelerator, model, tokenizer) if frozen else None,
    )
    batches = Batches(
        triples,
        make_batch,
        accelerator,
        batch_size=options.batch_size,
        accumulation=options.gradient_accumulation_steps,
        language_exponent=options.language_exponent,
        seed=options.seed,
        num_workers=options.num_workers,
    )
    return Stage(
        encoder=TwoPathEncoder(model),
        parameter_groups=parameter_groups(model, options),
        batches=batches,
        losses=functools.partial(losses_of_batch, losses, model.config.temperature, model.config.truncate_dims),
        work=work_of,
        evaluate=functools.partial(scores_on_dev_set, dev_set, tokenizer),
        criterion="mrr",
        save=functools.partial(save_model, tokenizer),
        fingerprints={
            "losses": [{type(loss).__name__: asdict(loss)} for loss in losses],
            "queries": asdict(triples.queries),
        },
    )


def prepare(model: HMDEForDocumentEmbedding, options: TrainOptions) -> None:
    """Set what saves memory and time, and freeze the rotation, which is made after training."""
    model.hmde.rotation.requires_grad_(False)
    if options.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    if options.compile:
        model.hmde.sentence_encoder.compile(dynamic=True)


def parameter_groups(model: HMDEForDocumentEmbedding, options: TrainOptions) -> list[dict[str, Any]]:
    """The trained weights, with a learning rate of their own for those of the document encoder."""
    document_rate = options.learning_rate if options.document_learning_rate is None else options.document_learning_rate
    rates = {
        model.hmde.sentence_encoder: options.learning_rate,
        model.hmde.sentence_modules: options.learning_rate,
        model.hmde.document_encoder: document_rate,
    }
    return [group for part, rate in rates.items() for group in groups_by_decay(part, rate, options.weight_decay)]


def kept_sentence_vectors(triples: Triples, accelerator: Accelerator, model: Any, tokenizer: Any) -> SentenceVectors:
    """The vectors of a frozen sentence encoder, beside the triples."""
    folder = Path(f"{triples.folder}-sentence-vectors")
    documents = triples.articles, triples.rows_of_articles(), triples.fingerprint
    return sentence_vectors(folder, accelerator, model, tokenizer, *documents)


def losses_of_batch(
    losses: Sequence[Loss], temperature: float, sizes: Sequence[int], embeddings: Embeddings, batch: Batch
) -> dict[str, Tensor]:
    """See `weighted_losses`."""
    return weighted_losses(BatchVectors(embeddings, batch, temperature), losses, sizes)


def scores_on_dev_set(dev_set: DevSet, tokenizer: HMDETokenizer, encoder: Any) -> dict[str, float]:
    """See `DevSet.evaluate`."""
    return dev_set.evaluate(encoder.model, tokenizer)


def work_of(batch: Batch) -> Work:
    """The documents of a batch, and their tokens."""
    documents = batch.rows[DOCUMENTS]
    tokens = documents.get("sentence_lengths", documents["attention_mask"])
    return Work(len(tokens), int(tokens.sum()))


def save_model(tokenizer: HMDETokenizer, encoder: Any, folder: Path) -> None:
    """Write the model, with an adapter merged into its weights, and its tokenizer."""
    encoder.model.save_pretrained(folder, state_dict=merged_weights(encoder.model))
    tokenizer.save_pretrained(folder)
