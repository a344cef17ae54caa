"""Pretrain an HMDE on triples of documents (paper, section 2.2).

    accelerate launch training/pretrain.py --config configuration/pretrain/sample.yaml [--key value ...]

Reads a corpus of `python -m training.corpus`; writes a model folder ready for the Hub, and beside it a training folder
with checkpoints and logs, from which `--resume true` goes on. On SIGTERM it finishes the step, saves a checkpoint and
exits with code 143. All options: `python training/pretrain.py --help`, or training/recipes.py.
"""

from __future__ import annotations

import functools
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor

from common.command_line import options_from, run
from modeling_hmde import HMDEConfig
from training.data.articles import fingerprint_of_corpus
from training.data.batches import Batch, batches, collate, steps_per_epoch
from training.data.dev_set import DevSet
from training.data.sentence_vectors import sentence_vectors
from training.data.triples import Triples
from training.loop.cached_gradients import Embeddings, cut_into_chunks, embed_chunks
from training.loop.checkpoints import describe_run
from training.loop.loop import Progress, Stage, train
from training.loop.meter import Work
from training.loop.momentum import MomentumQueue
from training.model_card import write_model_card
from training.models import TwoPathEncoder, build, model_flops, parameter_groups, teacher_of
from training.objectives.documents import document_losses
from training.recipes import PretrainRecipe


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(PretrainRecipe, argv)
    train(
        recipe,
        make_stage=functools.partial(document_stage, recipe),
        write_card=functools.partial(write_card, recipe),
    )


def document_stage(recipe: PretrainRecipe, accelerator: Accelerator) -> Stage[Batch]:
    """What the recipe trains, on what, towards what.

    Raises:
        ValueError: the corpus, the sentence encoder or the architecture is not what the recipe says.
    """
    set_seed(recipe.seed)
    triples = Triples(
        recipe.corpus,
        "train",
        symmetric=recipe.symmetric,
        query_source=recipe.query_source,
        query_language=recipe.query_language,
        seed=recipe.seed,
    )
    dev_set = DevSet(triples.articles, recipe.eval_concepts, recipe.seed)
    model, tokenizer = build(recipe)
    with_queries = recipe.query_weight > 0 or recipe.teacher is not None
    set_seed(recipe.seed, device_specific=True)  # dropout of its own for each process, from here on
    epoch_steps = steps_per_epoch(recipe, triples, accelerator.num_processes)
    corpus = fingerprint_of_corpus(Path(recipe.corpus))
    kept = None
    if recipe.freeze == "sentence_encoder":
        folder = Path(f"{recipe.corpus}-sentence-vectors")
        rows = triples.rows_of_articles()
        kept = sentence_vectors(folder, accelerator, model, tokenizer, triples.articles, rows, corpus)
    make_batch = functools.partial(
        collate,
        roles=triples.roles,
        tokenizer=tokenizer,
        query_path=(recipe.query_path or model.config.query_path) if with_queries else None,
        sentence_vectors=kept,
    )
    teacher = teacher_of(model, tokenizer, recipe.teacher).to(accelerator.device) if recipe.teacher else None
    encoder, queue = TwoPathEncoder(model, max_sentences=model.config.max_sentences if teacher else None), None
    if recipe.queue_size:
        size, momentum = recipe.queue_size, recipe.queue_momentum
        queue = MomentumQueue(encoder, size, model.config.hidden_size, momentum, accelerator.device)

    def losses(embeddings: Embeddings, batch: Batch, keys: Embeddings | None) -> dict[str, Tensor]:
        of_teacher = None
        if teacher is not None:
            of_teacher = embed_chunks(teacher, cut_into_chunks(batch.rows, recipe.max_tokens_per_chunk))
        losses_of = functools.partial(
            document_losses, embeddings, batch, recipe, model.config.temperature, of_teacher=of_teacher
        )
        if queue is None or keys is None:
            return losses_of()
        of_batch = losses_of(keys=keys["documents"], queued=(queue.vectors, queue.concepts))
        of_roles = dict(zip(batch.concepts, keys["documents"].unflatten(0, (len(batch.concepts), -1))))
        queue.push(of_roles["positive"], batch.concepts["positive"])  # after the loss, in which they stand already
        return of_batch

    def work(batch: Batch) -> Work:
        documents = batch.rows["documents"]
        tokens = documents.get("sentence_lengths", documents["attention_mask"])
        flops = sum(model_flops(model, rows, name != "queries") for name, rows in batch.rows.items())
        return Work(len(tokens), int(tokens.sum()), flops)

    def evaluate(encoder: Any) -> dict[str, float]:
        return dev_set.evaluate(encoder.model, tokenizer)

    def save(encoder: Any, folder: Path) -> None:
        encoder.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return Stage(
        encoder=encoder,
        parameter_groups=parameter_groups(model, recipe),
        total_steps=min(recipe.epochs * epoch_steps, recipe.max_steps or recipe.epochs * epoch_steps),
        batches=functools.partial(batches, recipe, accelerator, triples, make_batch),
        losses=losses,
        work=work,
        evaluate=evaluate,
        criterion="mrr",
        save=save,
        run=describe_run(asdict(recipe), corpus, accelerator.num_processes),
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
