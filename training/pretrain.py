"""Pretrain an HMDE on triples of documents (paper, section 2.2).

    accelerate launch training/pretrain.py --config configuration/pretrain/sample.yaml [--key value ...]

Reads a corpus of `python -m training.corpus`; writes a model folder ready for the Hub, and beside it a training folder
with checkpoints and logs, from which `--resume true` goes on.
"""

from __future__ import annotations

import functools
import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration, set_seed
from huggingface_hub import HfApi
from jsonargparse import auto_cli
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import get_linear_schedule_with_warmup

from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDETokenizer
from training.data import Batch, QuerySource, Triples, collate
from training.dev_set import DevSet
from training.folders import written_whole
from training.model_card import write_model_card
from training.objectives import HardNegatives, info_nce


@dataclass
class PretrainRecipe:
    """A pretraining run.

    Args:
        corpus: folder that `python -m training.corpus` wrote.
        output: folder of the finished model, ready for the Hub. Checkpoints and logs go to `<output>-training`.
        sentence_encoder: Hub name or folder of the encoder to start from.
        architecture: fields of HMDEConfig that differ from its defaults, which are the paper's.
        tokenizer: options of HMDETokenizer that differ from its defaults.
        sentence_dropout: dropout inside the sentence encoder; its own if not given. On CPUs, 0 makes training about
            twice as fast.
        freeze: nothing; the word_embeddings, which spares their large gradient and keeps languages that are not in the
            corpus where they are; or the whole sentence_encoder (paper, table 3).
        hard_negatives: an anchor sees its own hard negative (paper), those of the whole batch, or none.
        symmetric: also seek the anchor among the anchors, from the positive and with a hard negative of its own.
        query_weight: weight of the loss that draws a query in one language, through the sentence encoder alone, to the
            document in the other; 0 leaves it out, as the paper does.
        query_source: what stands for a query: the anchor's title, a sentence of it, or either.
        epochs: passes over the triples.
        max_steps: stop after so many optimizer steps, within `epochs`.
        batch_size: triples of one forward pass on one device; in-batch negatives come from these.
        gradient_accumulation_steps: forward passes to an optimizer step; they add no negatives.
        learning_rate: of the pretrained sentence encoder, reached after the warm-up, then falling linearly to 0.
        document_learning_rate: of the new document encoder; the same if not given.
        warmup_steps: optimizer steps over which the learning rates rise from 0.
        weight_decay: AdamW's, on matrices only.
        max_grad_norm: gradients longer than this are shortened to it.
        mixed_precision: no, bf16 or fp16.
        gradient_checkpointing: recompute activations in the backward pass, for memory.
        num_workers: processes that tokenize ahead.
        eval_steps: optimizer steps between evaluations on dev concepts; the best model is the one that is kept.
        eval_concepts: size of the pool in which dev concepts are sought; training concepts fill it up.
        save_steps: optimizer steps between checkpoints; the last one is kept.
        log_steps: optimizer steps between log entries.
        log_with: a tracker of Accelerate (tensorboard, wandb, mlflow ...), or none.
        resume: go on from the last checkpoint of this output.
        push_to_hub: repository to upload the finished folder to.
        seed: of initialisation, dropout, order and queries.
    """

    corpus: str
    output: str
    sentence_encoder: str = "sentence-transformers/LaBSE"
    architecture: dict[str, Any] = field(default_factory=dict)
    tokenizer: dict[str, Any] = field(default_factory=dict)
    sentence_dropout: float | None = None
    freeze: Literal["nothing", "word_embeddings", "sentence_encoder"] = "nothing"
    hard_negatives: HardNegatives = "own"
    symmetric: bool = False
    query_weight: float = 0.0
    query_source: QuerySource = "both"
    epochs: int = 1
    max_steps: int | None = None
    batch_size: int = 2
    gradient_accumulation_steps: int = 64
    learning_rate: float = 1e-5
    document_learning_rate: float | None = None
    warmup_steps: int = 1000
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"
    gradient_checkpointing: bool = False
    num_workers: int = 0
    eval_steps: int = 500
    eval_concepts: int = 100
    save_steps: int = 500
    log_steps: int = 10
    log_with: str | None = None
    resume: bool = False
    push_to_hub: str | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        positive = ("epochs", "batch_size", "gradient_accumulation_steps", "eval_steps", "eval_concepts", "save_steps")
        for name in (*positive, "log_steps", "learning_rate", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"max_steps is {self.max_steps}; it must be at least 1, or left out")


def training_folder(recipe: PretrainRecipe) -> Path:
    """Where checkpoints, logs and the best model so far are kept."""
    return Path(f"{recipe.output}-training")


@dataclass
class Progress:
    """What a checkpoint must remember beside model, optimizer, schedule and random states."""

    step: int = 0
    history: dict[int, dict[str, float]] = field(default_factory=dict)  # dev scores by step; 0 is the untrained start

    @property
    def best_step(self) -> int:
        return max(self.history, key=lambda step: self.history[step]["mrr"])

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class TripleEncoder(nn.Module):
    """Both encodings of a batch in one forward pass, as distributed training needs it."""

    def __init__(self, model: HMDEForDocumentEmbedding, embed_queries: bool) -> None:
        super().__init__()
        self.model = model
        self.embed_queries = embed_queries

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Document embeddings (documents, hidden) and query embeddings (triples, hidden)."""
        queries = self.model.embed_queries(**batch.queries) if self.embed_queries else None
        return self.model(**batch.documents).pooler_output, queries


def main(argv: list[str] | None = None) -> None:
    recipe = auto_cli(PretrainRecipe, args=argv, as_positional=False)
    check_folders(recipe)
    accelerator = Accelerator(
        gradient_accumulation_steps=recipe.gradient_accumulation_steps,
        mixed_precision=recipe.mixed_precision,
        log_with=recipe.log_with,
        project_config=ProjectConfiguration(logging_dir=str(training_folder(recipe) / "logs")),
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
        step_scheduler_with_optimizer=False,
    )
    set_seed(recipe.seed)
    triples = Triples(
        recipe.corpus, "train", both_sides=recipe.symmetric, query_source=recipe.query_source, seed=recipe.seed
    )
    dev_set = DevSet(triples.articles, recipe.eval_concepts, recipe.seed)
    model, tokenizer = build(recipe)
    train(recipe, accelerator, model, tokenizer, triples, dev_set)


def check_folders(recipe: PretrainRecipe) -> None:
    """Raises:
    ValueError: the output is there already, or there is nothing to resume.
    """
    if Path(recipe.output).exists() and not recipe.resume:
        raise ValueError(f"{recipe.output} exists; remove it, name another output, or go on with --resume true")
    if recipe.resume and not (training_folder(recipe) / "checkpoint").exists():
        raise ValueError(f"{training_folder(recipe)} has no checkpoint to resume from; start without --resume")


def build(recipe: PretrainRecipe) -> tuple[HMDEForDocumentEmbedding, HMDETokenizer]:
    """The untrained HMDE and its tokenizer, which cuts documents as the configuration says."""
    model = HMDEForDocumentEmbedding.from_sentence_encoder(recipe.sentence_encoder, **recipe.architecture)
    tokenizer = HMDETokenizer.from_sentence_encoder(
        recipe.sentence_encoder,
        max_sentences=model.config.max_sentences,
        max_sentence_length=model.config.max_sentence_length,
        **recipe.tokenizer,
    )
    if recipe.sentence_dropout is not None:
        for module in model.hmde.sentence_encoder.modules():
            if isinstance(module, nn.Dropout):
                module.p = recipe.sentence_dropout
    if recipe.freeze == "word_embeddings":
        model.get_input_embeddings().requires_grad_(False)
    elif recipe.freeze == "sentence_encoder":
        model.hmde.sentence_encoder.requires_grad_(False)
    if recipe.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    return model, tokenizer


def train(
    recipe: PretrainRecipe,
    accelerator: Accelerator,
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    triples: Triples,
    dev_set: DevSet,
) -> None:
    """The training loop: leaves the best model in the output folder."""
    loader = DataLoader(
        triples,
        batch_size=recipe.batch_size,
        shuffle=True,
        drop_last=len(triples) >= recipe.batch_size * accelerator.num_processes,
        num_workers=recipe.num_workers,
        collate_fn=functools.partial(collate, tokenizer=tokenizer, both_sides=recipe.symmetric),
    )
    optimizer = torch.optim.AdamW(parameter_groups(model, recipe), lr=recipe.learning_rate)
    encoder, optimizer, loader = accelerator.prepare(TripleEncoder(model, recipe.query_weight > 0), optimizer, loader)
    steps_per_epoch = math.ceil(len(loader) / recipe.gradient_accumulation_steps)
    total_steps = min(recipe.epochs * steps_per_epoch, recipe.max_steps or math.inf)
    schedule = get_linear_schedule_with_warmup(optimizer, recipe.warmup_steps, int(total_steps))
    progress = Progress()
    accelerator.register_for_checkpointing(schedule, progress)
    if recipe.resume:
        accelerator.load_state(str(training_folder(recipe) / "checkpoint"))
    accelerator.init_trackers("pretrain", config={key: str(value) for key, value in asdict(recipe).items()})
    evaluate = functools.partial(evaluate_and_keep_best, recipe, accelerator, model, tokenizer, dev_set, progress)
    if not recipe.resume:
        evaluate()

    bar = tqdm(total=int(total_steps), initial=progress.step, disable=not accelerator.is_main_process, unit="step")
    meter = Meter()
    encoder.train()
    for batch in batches(accelerator, loader, triples, progress.step, steps_per_epoch, recipe):
        with accelerator.accumulate(encoder):
            documents, queries = encoder(batch)
            losses = objective(documents, queries, batch, recipe, model.config.temperature)
            accelerator.backward(sum(losses.values()))
            if accelerator.sync_gradients:
                losses["grad_norm"] = accelerator.clip_grad_norm_(encoder.parameters(), recipe.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad()
        meter.add(losses, batch)
        if not accelerator.sync_gradients:
            continue
        schedule.step()
        progress.step += 1
        bar.update()
        if progress.step % recipe.log_steps == 0:
            entry = meter.read() | {"learning_rate": schedule.get_last_lr()[0]}
            accelerator.log(entry, step=progress.step)
            bar.set_postfix({name: f"{value:.3g}" for name, value in entry.items()})
        if progress.step % recipe.eval_steps == 0 or progress.step == total_steps:
            evaluate()
            encoder.train()
        if progress.step % recipe.save_steps == 0 or progress.step == total_steps:
            save_checkpoint(accelerator, training_folder(recipe) / "checkpoint")
    bar.close()
    accelerator.end_training()
    if accelerator.is_main_process:
        finish(recipe, progress)


def parameter_groups(model: nn.Module, recipe: PretrainRecipe) -> list[dict[str, Any]]:
    """Weight decay on matrices only; the new document encoder at a learning rate of its own."""
    document_rate = recipe.learning_rate if recipe.document_learning_rate is None else recipe.document_learning_rate
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            rate = document_rate if "document_encoder" in name else recipe.learning_rate
            decay = recipe.weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((rate, decay), []).append(parameter)
    return [{"params": params, "lr": rate, "weight_decay": decay} for (rate, decay), params in groups.items()]


def batches(
    accelerator: Accelerator,
    loader: Any,
    triples: Triples,
    first_step: int,
    steps_per_epoch: int,
    recipe: PretrainRecipe,
) -> Iterator[Batch]:
    """The batches of all epochs from `first_step` on, until `max_steps`. An epoch ends with an optimizer step."""
    steps_left = (recipe.max_steps or math.inf) - first_step
    for epoch in range(first_step // steps_per_epoch, recipe.epochs):
        triples.set_epoch(epoch)
        loader.set_epoch(epoch)
        done = first_step % steps_per_epoch if epoch == first_step // steps_per_epoch else 0
        skipped = done * recipe.gradient_accumulation_steps
        for batch in accelerator.skip_first_batches(loader, skipped) if skipped else loader:
            if steps_left == 0:
                return
            yield batch
            steps_left -= accelerator.sync_gradients


def objective(
    documents: Tensor, queries: Tensor | None, batch: Batch, recipe: PretrainRecipe, temperature: float
) -> dict[str, Tensor]:
    """The weighted losses of a batch, each a mean over its triples; their sum is what is minimised."""
    anchors, positives, negatives, *second = documents.float().split(len(batch.concepts))
    contrast = functools.partial(
        info_nce, concepts=batch.concepts, temperature=temperature, hard_negatives=recipe.hard_negatives
    )
    losses = {
        "document_loss": contrast(anchors, positives, negatives, negative_concepts=batch.negative_concepts).mean()
    }
    if recipe.symmetric:
        losses["reverse_loss"] = contrast(
            positives, anchors, second[0], negative_concepts=batch.positive_negative_concepts
        ).mean()
    if queries is not None:
        losses["query_loss"] = (
            recipe.query_weight
            * contrast(queries.float(), positives, negatives, negative_concepts=batch.negative_concepts).mean()
        )
    return losses


class Meter:
    """Means of the losses and throughput since the last reading."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.sums: dict[str, list[Tensor]] = {}
        self.documents = 0
        self.tokens = torch.zeros((), dtype=torch.long)
        self.began = time.perf_counter()

    def add(self, losses: dict[str, Tensor], batch: Batch) -> None:
        for name, loss in losses.items():
            self.sums.setdefault(name, []).append(loss.detach())
        self.documents += len(batch.documents["attention_mask"])
        self.tokens = self.tokens + batch.documents["attention_mask"].sum().cpu()

    def read(self) -> dict[str, float]:
        seconds = time.perf_counter() - self.began
        entry = {name: float(torch.stack(values).mean()) for name, values in self.sums.items()}
        entry |= {"documents_per_second": self.documents / seconds, "tokens_per_second": float(self.tokens) / seconds}
        self._start()
        return entry


def evaluate_and_keep_best(
    recipe: PretrainRecipe,
    accelerator: Accelerator,
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    dev_set: DevSet,
    progress: Progress,
) -> None:
    """Seek the dev concepts, and keep the model if it is the best so far. The untrained start counts as one."""
    if accelerator.is_main_process:
        with accelerator.autocast():
            scores = dev_set.evaluate(model, tokenizer)
        accelerator.print(
            f"step {progress.step}: " + ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
        )
        accelerator.log({f"dev_{name}": value for name, value in scores.items()}, step=progress.step)
        progress.history[progress.step] = scores
        if progress.step == progress.best_step:
            with written_whole(training_folder(recipe) / "best") as folder:
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
    accelerator.wait_for_everyone()


def save_checkpoint(accelerator: Accelerator, folder: Path) -> None:
    """Every process writes its part; the folder gets its name when all have."""
    partial = folder.with_name(folder.name + ".partial")
    if accelerator.is_main_process:
        shutil.rmtree(partial, ignore_errors=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(partial))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)


def finish(recipe: PretrainRecipe, progress: Progress) -> None:
    """The best model, with its card, becomes the output folder; on request it goes to the Hub."""
    best = training_folder(recipe) / "best"
    with written_whole(recipe.output) as folder:
        shutil.copytree(best, folder, dirs_exist_ok=True)
        write_model_card(
            folder,
            recipe.push_to_hub or recipe.output,
            asdict(recipe),
            HMDEConfig.from_pretrained(best),
            json.loads((Path(recipe.corpus) / "statistics.json").read_text(encoding="utf-8")),
            progress.history,
            progress.best_step,
        )
    if recipe.push_to_hub:
        HfApi().create_repo(recipe.push_to_hub, exist_ok=True)
        HfApi().upload_folder(repo_id=recipe.push_to_hub, folder_path=recipe.output)


if __name__ == "__main__":
    main()
