"""Pretrain an HMDE on triples of documents (paper, section 2.2).

    accelerate launch training/pretrain.py --config configuration/pretrain/sample.yaml [--key value ...]

Reads a corpus of `python -m training.corpus`; writes a model folder ready for the Hub, and beside it a training folder
with checkpoints and logs, from which `--resume true` resumes. On SIGTERM it finishes the step, saves a checkpoint and
exits with code 143. All options: `python training/pretrain.py --help`, or training/pretrain_recipe.py.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import hmde.common.terminal
import hmde.common.threads

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor

from hmde.common.command_line import options_from, run
from hmde.common.fingerprints import fingerprint_of_model
from training.data.batches import Batch, Batches, collate
from training.data.dev_set import DevSet
from training.data.sentence_vectors import sentence_vectors
from training.data.triples import Triples
from training.loop.cached_gradients import Embeddings, embed_in_chunks
from training.loop.loop import Stage, train
from training.loop.meter import Work
from training.loop.momentum import MomentumQueue
from training.lora import merged_weights
from training.losses import weighted_losses
from training.losses.batch import BatchVectors
from training.model_card import write_model_card
from training.models import TwoPathEncoder, build, groups_by_decay
from training.pretrain_recipe import PretrainRecipe
from training.teacher import load_teacher


def main(argv: list[str] | None = None) -> None:
    train(options_from(PretrainRecipe, argv), document_stage, write_model_card)


def document_stage(recipe: PretrainRecipe, accelerator: Accelerator) -> Stage[Batch]:
    """What the recipe trains, on what data, towards which losses.

    Raises:
        ValueError: the corpus, the sentence encoder or the architecture is not what the recipe says.
    """
    set_seed(recipe.seed)
    draw_triples = functools.partial(
        Triples, recipe.corpus, symmetric=recipe.losses.symmetric, queries=recipe.queries, seed=recipe.seed
    )
    triples = draw_triples("train")
    dev_set = DevSet(triples.articles, recipe.eval_concepts, recipe.seed)

    model, tokenizer = build(recipe)
    encoder = TwoPathEncoder(model, sentences=recipe.losses.read_sentences)
    document_rate = recipe.learning_rate if recipe.document_learning_rate is None else recipe.document_learning_rate
    groups = groups_by_decay(model.hmde.sentence_encoder, recipe.learning_rate, recipe.weight_decay)
    groups += groups_by_decay(model.hmde.sentence_modules, recipe.learning_rate, recipe.weight_decay)
    groups += groups_by_decay(model.hmde.document_encoder, document_rate, recipe.weight_decay)
    queue = None
    if recipe.losses.queue is not None:
        size, momentum = recipe.losses.queue.size, recipe.losses.queue.momentum
        queue = MomentumQueue(TwoPathEncoder(model), size, model.config.hidden_size, momentum, accelerator.device)
    teacher, fingerprints = None, dict[str, str]()
    if recipe.losses.distillation is not None:
        name, folder = recipe.losses.distillation.teacher, Path(f"{recipe.corpus}-teacher-vectors")
        teacher = load_teacher(name, model, tokenizer, folder, recipe.max_tokens_per_chunk, accelerator.device)
        fingerprints["files of the teacher"] = fingerprint_of_model(name)
    set_seed(recipe.seed, device_specific=True)  # dropout of its own for each process, from here on

    kept_vectors = None
    if recipe.freeze == "sentence_encoder":
        folder = Path(f"{recipe.corpus}-sentence-vectors")
        documents = triples.articles, triples.rows_of_articles(), triples.fingerprint
        kept_vectors = sentence_vectors(folder, accelerator, model, tokenizer, *documents)
    make_batch = functools.partial(
        collate,
        roles=triples.roles,
        tokenizer=tokenizer,
        query_path=(recipe.queries.path or model.config.query_path) if recipe.losses.read_queries else None,
        sentence_queries=recipe.losses.late_interaction.sentence_queries if recipe.losses.late_interaction else 0,
    )
    batches = Batches(
        triples,
        functools.partial(make_batch, sentence_vectors=kept_vectors),
        accelerator,
        batch_size=recipe.batch_size,
        accumulation=recipe.gradient_accumulation_steps,
        language_exponent=recipe.language_exponent,
        seed=recipe.seed,
        num_workers=recipe.num_workers,
    )

    def losses(embeddings: Embeddings, batch: Batch) -> dict[str, Tensor]:
        vectors = BatchVectors(embeddings, batch, model.config.temperature)
        if teacher is not None:
            vectors.teacher = teacher(batch.rows)
        if queue is not None and torch.is_grad_enabled():  # it has no part in the validation loss
            documents, max_tokens = {"documents": batch.rows["documents"]}, recipe.max_tokens_per_chunk
            with accelerator.autocast():
                vectors.key_documents = embed_in_chunks(queue.encoder, documents, max_tokens)["documents"].float()
            vectors.queued = queue.vectors, queue.concepts
        batch_losses = weighted_losses(vectors, recipe.losses, model.config.truncate_dims)
        if queue is not None and vectors.key_documents is not None:
            keys = dict(zip(batch.concepts, vectors.key_documents.unflatten(0, (len(batch.concepts), -1))))
            queue.push(keys["positive"], batch.concepts["positive"])  # after the loss, in which they stand already
        return batch_losses

    def work(batch: Batch) -> Work:
        documents = batch.rows["documents"]
        tokens = documents.get("sentence_lengths", documents["attention_mask"])
        return Work(len(tokens), int(tokens.sum()))

    def evaluate(encoder: Any) -> dict[str, float]:
        return dev_set.evaluate(encoder.model, tokenizer)

    def save(encoder: Any, folder: Path) -> None:
        encoder.model.save_pretrained(folder, state_dict=merged_weights(encoder.model))
        tokenizer.save_pretrained(folder)

    return Stage(
        encoder=encoder,
        parameter_groups=groups,
        batches=batches,
        losses=losses,
        work=work,
        evaluate=evaluate,
        criterion="mrr",
        save=save,
        validation_batches=lambda: batches.in_order(draw_triples("dev"), make_batch),
        queue=queue,
        fingerprints=fingerprints,
    )


if __name__ == "__main__":
    run(main)
