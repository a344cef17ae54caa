"""Pretrain an HMDE on triples of documents (paper, section 2.2).

    accelerate launch training/pretrain.py --config configuration/pretrain/sample.yaml [--key value ...]

Reads a corpus of `python -m training.corpus`; writes a model folder ready for the Hub, and beside it a training folder
with checkpoints and logs, from which `--resume true` resumes. On SIGTERM it finishes the step, saves a checkpoint and
exits with code 143. All options: `python training/pretrain.py --help`, or training/pretrain_recipe.py.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import common.threads

from accelerate import Accelerator
from accelerate.utils import send_to_device, set_seed
from torch import Tensor

from common.command_line import options_from, run
from modeling_hmde import HMDEConfig
from training.data.articles import fingerprint_of_corpus
from training.data.batches import Batch, Batches, collate
from training.data.dev_set import DevSet
from training.data.sentence_vectors import sentence_vectors
from training.data.triples import Triples
from training.loop.cached_gradients import Embeddings, cut_into_chunks, embed_chunks
from training.loop.checkpoints import describe_run
from training.loop.loop import Progress, Stage, total_steps, train
from training.loop.meter import Work
from training.loop.momentum import MomentumQueue
from training.losses import weighted_losses
from training.losses.batch import BatchVectors
from training.model_card import write_model_card
from training.models import TwoPathEncoder, build, load_teacher, model_flops, parameter_groups
from training.pretrain_recipe import PretrainRecipe


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(PretrainRecipe, argv)
    train(
        recipe,
        make_stage=functools.partial(document_stage, recipe),
        write_card=functools.partial(write_card, recipe),
    )


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
    corpus = fingerprint_of_corpus(Path(recipe.corpus))

    model, tokenizer = build(recipe)
    teacher = load_teacher(model, tokenizer, recipe.losses.distillation, accelerator.device)
    encoder = TwoPathEncoder(model, max_sentences=model.config.max_sentences if recipe.losses.read_sentences else None)
    groups = parameter_groups(model, recipe)
    queue = None
    if recipe.losses.queue is not None:
        size, momentum = recipe.losses.queue.size, recipe.losses.queue.momentum
        queue = MomentumQueue(encoder, size, model.config.hidden_size, momentum, accelerator.device)
    set_seed(recipe.seed, device_specific=True)  # dropout of its own for each process, from here on

    kept_vectors = None
    if recipe.freeze == "sentence_encoder":
        folder = Path(f"{recipe.corpus}-sentence-vectors")
        rows = triples.rows_of_articles()
        kept_vectors = sentence_vectors(folder, accelerator, model, tokenizer, triples.articles, rows, corpus)
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

    def losses(embeddings: Embeddings, batch: Batch, keys: Embeddings | None) -> dict[str, Tensor]:
        vectors = BatchVectors(embeddings, batch, model.config.temperature)
        if teacher is not None:
            vectors.teacher = embed_chunks(teacher, cut_into_chunks(batch.rows, recipe.max_tokens_per_chunk))
        if queue is None or keys is None:
            return weighted_losses(vectors, recipe.losses, model.config.truncate_dims)
        vectors.key_documents, vectors.queued = keys["documents"], (queue.vectors, queue.concepts)
        batch_losses = weighted_losses(vectors, recipe.losses, model.config.truncate_dims)
        key_roles = dict(zip(batch.concepts, keys["documents"].unflatten(0, (len(batch.concepts), -1))))
        queue.push(key_roles["positive"], batch.concepts["positive"])  # after the loss, in which they stand already
        return batch_losses

    def work(batch: Batch) -> Work:
        documents = batch.rows["documents"]
        tokens = documents.get("sentence_lengths", documents["attention_mask"])
        flops = sum(model_flops(model, rows, name != "queries") for name, rows in batch.rows.items())
        return Work(len(tokens), int(tokens.sum()), flops)

    def validation_batches() -> Iterator[Batch]:
        dev = draw_triples("dev")
        for first in range(0, len(dev), recipe.batch_size):
            examples = [dev[index] for index in range(first, min(first + recipe.batch_size, len(dev)))]
            yield send_to_device(make_batch(examples), accelerator.device)

    def evaluate(encoder: Any) -> dict[str, float]:
        return dev_set.evaluate(encoder.model, tokenizer)

    def save(encoder: Any, folder: Path) -> None:
        encoder.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return Stage(
        encoder=encoder,
        parameter_groups=groups,
        total_steps=total_steps(recipe, batches.steps_per_epoch),
        batches=batches.from_step,
        losses=losses,
        work=work,
        evaluate=evaluate,
        criterion="mrr",
        save=save,
        run=describe_run(asdict(recipe), corpus, accelerator.num_processes),
        validation_batches=validation_batches,
        queue=queue,
    )


def write_card(recipe: PretrainRecipe, folder: Path, progress: Progress) -> None:
    write_model_card(
        folder,
        recipe.push_to_hub or recipe.output,
        asdict(recipe),
        HMDEConfig.from_pretrained(folder),
        json.loads((Path(recipe.corpus) / "statistics.json").read_text(encoding="utf-8")),
        progress.history,
        progress.kept_step,
    )


if __name__ == "__main__":
    run(main)
