"""Pretrain an HMDE on triples of documents (paper, section 2.2).

    accelerate launch training/pretrain.py --config configuration/pretrain/sample.yaml [--key value ...]

Reads a corpus of `python -m training.corpus`; writes a model folder ready for the Hub, and beside it a training folder
with checkpoints and logs, from which `--resume true` goes on. On SIGTERM it finishes the step, saves a checkpoint and
exits with code 143.
"""

from __future__ import annotations

import copy
import functools
import json
import math
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import Accelerator
from accelerate.utils import (
    DistributedDataParallelKwargs,
    DistributedType,
    ProjectConfiguration,
    set_seed,
)
from huggingface_hub import HfApi
from jsonargparse import auto_cli
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import get_linear_schedule_with_warmup

from evaluation.saved_models import model_type_of
from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDETokenizer
from training.batches import Batches
from training.cached_gradients import (
    Embeddings,
    Rows,
    backward_through_chunks,
    embed_chunks,
)
from training.checkpoints import (
    checkpoints,
    corpus_fingerprint,
    describe_run,
    load_newest_checkpoint,
    save_checkpoint,
    stop_on_sigterm,
)
from training.data import QuerySource, Triples
from training.dev_set import DevSet
from training.distributed import follow, rows_of_all_processes, whole
from training.folders import written_whole
from training.meter import Meter
from training.model_card import write_model_card
from training.momentum import DocumentQueue
from training.objectives import DocumentObjective, HardNegatives
from training.pretrain_objective import check_grad_norm, checked_objective
from training.sentence_vectors import sentence_vectors

EXIT_CODE_OF_SIGTERM = 143  # 128 + 15, as a shell reports it


@dataclass
class PretrainRecipe:
    """A pretraining run.

    Args:
        corpus: folder that `python -m training.corpus` wrote.
        output: folder of the finished model, ready for the Hub. Checkpoints and logs go to `<output>-training`.
        sentence_encoder: Hub name or folder of the encoder to start from; or of an HMDE, to train that one on.
        architecture: fields of HMDEConfig that differ from its defaults, which are the paper's, or from that HMDE's.
        tokenizer: options of HMDETokenizer that differ from its defaults.
        sentence_dropout: dropout inside the sentence encoder; its own if not given. On CPUs, 0 makes training about
            twice as fast.
        freeze: nothing; the word_embeddings, which spares their large gradient and keeps languages that are not in the
            corpus where they are; or the whole sentence_encoder (paper, table 3), without dropout. Its sentence vectors
            are then computed once for all runs, and kept in `<corpus>-sentence-vectors`.
        document_objective: what draws documents of one concept together: info_nce (paper, equation 1), or the
            distance_constraint of T-MDE.
        hard_negatives: an anchor sees its own hard negative (paper), those of the whole batch, or none.
        symmetric: also seek the anchor among the anchors, from the positive and with a hard negative of its own.
        query_weight: weight of the loss that draws a query in one language, through the sentence encoder alone, to the
            document in the other; 0 leaves it out, as the paper does.
        query_source: what stands for a query: the anchor's title, a sentence of it, or either.
        epochs: passes over the triples.
        max_steps: stop after so many optimizer steps, within `epochs`.
        batch_size: triples of one batch on one device; in-batch negatives come from these, of all devices.
        max_tokens_per_chunk: tokens of the documents that are encoded at once on one device. Memory grows with it;
            where a batch has more, its gradients are cached, which costs a second forward pass and changes no result.
        group_by_length: bring triples of like length together in a batch, so that devices take as long.
        same_languages: all triples of a batch are of one pair of languages.
        language_exponent: draw a pair of languages with n triples in proportion to n to this power; 1 takes every
            triple once in an epoch.
        mixup: lay two triples' documents end to end, in random order (mixup contrast of InfoXLM).
        queue_size: documents of earlier batches, embedded by a momentum encoder, that are negatives in a loss of their
            own (cross-lingual contrast of InfoXLM, which takes 131072); 0 leaves it out.
        queue_momentum: of the momentum encoder's weights (InfoXLM: 0.9999, or 0.999 for a large model).
        gradient_accumulation_steps: batches to an optimizer step; they add no negatives.
        learning_rate: of the pretrained sentence encoder, reached after the warm-up, then falling linearly to 0.
        document_learning_rate: of the new document encoder; the same if not given.
        warmup_steps: optimizer steps over which the learning rates rise from 0.
        weight_decay: AdamW's, on matrices only.
        max_grad_norm: gradients longer than this are shortened to it.
        learn_temperature: train it, from the architecture's on, at the document encoder's learning rate.
        ema_decay: evaluate and keep the exponential moving average of the weights, of this decay; 0 keeps the weights.
        mixed_precision: no, bf16 or fp16.
        gradient_checkpointing: recompute activations in the backward pass, for memory.
        compile: compile the sentence encoder with torch.compile.
        num_workers: processes that tokenize ahead.
        eval_steps: optimizer steps between evaluations on dev concepts; the best model is the one that is kept.
        eval_concepts: size of the pool in which dev concepts are sought; training concepts fill it up.
        save_steps: optimizer steps between checkpoints.
        keep_checkpoints: as many of the last checkpoints are kept.
        log_steps: optimizer steps between log entries.
        device_tflops: peak of one device in teraflops a second; with it the utilisation is logged.
        log_with: a tracker of Accelerate (tensorboard, wandb, mlflow ...), or none.
        resume: go on from the last whole checkpoint of this output.
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
    document_objective: DocumentObjective = "info_nce"
    hard_negatives: HardNegatives = "own"
    symmetric: bool = False
    query_weight: float = 0.0
    query_source: QuerySource = "both"
    epochs: int = 1
    max_steps: int | None = None
    batch_size: int = 2
    max_tokens_per_chunk: int = 32_768
    group_by_length: bool = False
    same_languages: bool = False
    language_exponent: float = 1.0
    mixup: bool = False
    queue_size: int = 0
    queue_momentum: float = 0.9999
    gradient_accumulation_steps: int = 64
    learning_rate: float = 1e-5
    document_learning_rate: float | None = None
    warmup_steps: int = 1000
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    learn_temperature: bool = False
    ema_decay: float = 0.0
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"
    gradient_checkpointing: bool = False
    compile: bool = False
    num_workers: int = 0
    eval_steps: int = 500
    eval_concepts: int = 100
    save_steps: int = 500
    keep_checkpoints: int = 2
    log_steps: int = 10
    device_tflops: float | None = None
    log_with: str | None = None
    resume: bool = False
    push_to_hub: str | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        sizes = ("epochs", "batch_size", "gradient_accumulation_steps", "max_tokens_per_chunk")
        steps = ("eval_steps", "eval_concepts", "save_steps", "keep_checkpoints", "log_steps")
        for name in (*sizes, *steps, "learning_rate", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        for name in ("query_weight", "queue_size", "language_exponent"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")
        for name in ("queue_momentum", "ema_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0 and below 1")
        if self.mixup and self.freeze == "sentence_encoder":
            raise ValueError("mixup joins texts, of which a frozen sentence encoder's vectors are kept; choose one")
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
        """The later of equals: a pool so small that the start already finds all of it must not undo the training."""
        return max(self.history, key=lambda step: (self.history[step]["mrr"], step))

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class TripleEncoder(nn.Module):
    """Both encodings of a chunk in one forward pass, as distributed training needs it, and a learned temperature."""

    def __init__(self, model: HMDEForDocumentEmbedding, learn_temperature: bool = False) -> None:
        super().__init__()
        self.model = model
        # A vector of one, since FSDP cannot shard a scalar.
        self.log_temperature = nn.Parameter(torch.tensor([math.log(model.config.temperature)]), learn_temperature)

    def forward(self, documents: Rows | None, queries: Rows | None) -> Embeddings:
        return Embeddings(
            None if documents is None else self._embed_documents(documents),
            None if queries is None else self.model.embed_queries(**queries),
            self.log_temperature.exp().squeeze() if self.log_temperature.requires_grad else None,
        )

    def _embed_documents(self, documents: Rows) -> Tensor:
        if "sentence_embeddings" in documents:
            return self.model.hmde.document_encoder(documents["sentence_embeddings"], documents["sentence_lengths"])[1]
        return self.model(**documents).pooler_output


def main(argv: list[str] | None = None) -> None:
    recipe = auto_cli(PretrainRecipe, args=argv, as_positional=False)
    check_folders(recipe)
    accelerator = Accelerator(
        mixed_precision=recipe.mixed_precision,
        log_with=recipe.log_with,
        project_config=ProjectConfiguration(logging_dir=str(training_folder(recipe) / "logs")),
        kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],  # the buffers are constants
    )
    if accelerator.state.deepspeed_plugin is not None:  # which would read them off data loaders and its own file
        accelerator.state.deepspeed_plugin.deepspeed_config |= {
            "train_micro_batch_size_per_gpu": recipe.batch_size,
            "gradient_clipping": recipe.max_grad_norm,
        }
    set_seed(recipe.seed)
    triples = Triples(
        recipe.corpus, "train", both_sides=recipe.symmetric, query_source=recipe.query_source, seed=recipe.seed
    )
    dev_set = DevSet(triples.articles, recipe.eval_concepts, recipe.seed)
    model, tokenizer = build(recipe)
    set_seed(recipe.seed, device_specific=True)  # dropout of its own for each process, from here on
    train(recipe, accelerator, model, tokenizer, triples, dev_set)


def check_folders(recipe: PretrainRecipe) -> None:
    """Raises:
    ValueError: the output is there already, or there is nothing to resume.
    """
    if Path(recipe.output).exists() and not recipe.resume:
        raise ValueError(f"{recipe.output} exists; remove it, name another output, or go on with --resume true")
    if recipe.resume and not checkpoints(training_folder(recipe) / "checkpoints"):
        raise ValueError(f"{training_folder(recipe)} has no checkpoint to resume from; start without --resume")


def build(recipe: PretrainRecipe) -> tuple[HMDEForDocumentEmbedding, HMDETokenizer]:
    """The HMDE to train and its tokenizer, which cuts documents as the configuration says."""
    start = recipe.sentence_encoder
    trained = model_type_of("sentence_encoder", start) == HMDEConfig.model_type
    make_model = trained_hmde if trained else HMDEForDocumentEmbedding.from_sentence_encoder
    model = make_model(start, **recipe.architecture, dtype=torch.float32)
    make_tokenizer = HMDETokenizer.from_pretrained if trained else HMDETokenizer.from_sentence_encoder
    limits = {name: getattr(model.config, name) for name in ("max_sentences", "max_sentence_length")}
    tokenizer = make_tokenizer(start, **limits, **recipe.tokenizer)
    sentence_dropout = 0.0 if recipe.freeze == "sentence_encoder" else recipe.sentence_dropout
    if sentence_dropout is not None:
        for module in model.hmde.sentence_encoder.modules():
            if isinstance(module, nn.Dropout):
                module.p = sentence_dropout
    if recipe.freeze == "word_embeddings":
        model.get_input_embeddings().requires_grad_(False)
    elif recipe.freeze == "sentence_encoder":
        model.hmde.sentence_encoder.requires_grad_(False)
    if recipe.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    if recipe.compile:
        model.hmde.sentence_encoder.compile(dynamic=True)
    return model, tokenizer


def trained_hmde(start: str, dtype: torch.dtype, **architecture: Any) -> HMDEForDocumentEmbedding:
    """An HMDE to train on, with what the architecture changes of its configuration.

    Raises:
        ValueError: the architecture has an unknown field, or does not fit the weights.
    """
    config, unknown = HMDEConfig.from_pretrained(start, return_unused_kwargs=True, **architecture)
    if unknown:
        raise ValueError(f"HMDEConfig has no field {', '.join(unknown)}; see its documentation for those it has")
    loaded: Any = HMDEForDocumentEmbedding.from_pretrained(
        start, config=config, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True
    )
    model, loading = loaded
    if any(loading.values()):
        found = "; ".join(f"{name}: {', '.join(map(str, keys))}" for name, keys in loading.items() if keys)
        raise ValueError(f"the architecture does not fit the weights of {start}; leave its own as it is ({found})")
    return model


def train(
    recipe: PretrainRecipe,
    accelerator: Accelerator,
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    triples: Triples,
    dev_set: DevSet,
) -> None:
    """The training loop: leaves the best model in the output folder."""
    corpus = corpus_fingerprint(Path(recipe.corpus))
    run = describe_run(asdict(recipe), corpus, accelerator.num_processes)
    folder = training_folder(recipe)
    data = Batches(recipe, accelerator, tokenizer, triples)
    if recipe.freeze == "sentence_encoder":
        kept = Path(f"{recipe.corpus}-sentence-vectors")
        data.sentence_vectors = sentence_vectors(kept, accelerator, model, tokenizer, triples.articles, corpus)
    encoder = TripleEncoder(model, recipe.learn_temperature)
    momentum_encoder = (
        copy.deepcopy(encoder).requires_grad_(False).to(accelerator.device) if recipe.queue_size else None
    )
    kept_model = model
    if recipe.ema_decay or accelerator.distributed_type == DistributedType.FSDP:  # whose weights are in pieces
        kept_model = copy.deepcopy(model).requires_grad_(False).to(accelerator.device)
    optimizer = torch.optim.AdamW(parameter_groups(encoder, recipe), lr=recipe.learning_rate)
    encoder, optimizer = accelerator.prepare(encoder, optimizer)
    temperature, total_steps = model.config.temperature, data.total_steps
    schedule = get_linear_schedule_with_warmup(optimizer, recipe.warmup_steps, total_steps)
    progress = Progress()
    queue = DocumentQueue(recipe.queue_size, model.config.hidden_size, 1 + recipe.mixup, accelerator.device)
    accelerator.register_for_checkpointing(schedule, progress, queue)
    for slow in (momentum_encoder, kept_model if recipe.ema_decay else None):
        if slow is not None:
            accelerator.register_for_checkpointing(slow)
    if recipe.resume:
        load_newest_checkpoint(accelerator, folder / "checkpoints", run)
    accelerator.init_trackers("pretrain", config={key: str(value) for key, value in asdict(recipe).items()})
    stop_on_sigterm(accelerator)

    def evaluate() -> None:
        trained = accelerator.unwrap_model(encoder)
        if kept_model is not model and not recipe.ema_decay:
            follow(kept_model, trained.model, momentum=0.0)
        if recipe.learn_temperature:
            kept_model.config.temperature = float(whole(trained.log_temperature).exp())
        evaluate_and_keep_best(recipe, accelerator, kept_model, tokenizer, dev_set, progress)

    if progress.step == 0:
        evaluate()
    bar = tqdm(total=total_steps, initial=progress.step, disable=not accelerator.is_main_process, unit="step")
    meter = Meter(encoder, accelerator.num_processes, recipe.device_tflops)
    encoder.train()
    for batches in meter.waiting(data.steps(progress.step)):
        for batch in batches:
            chunks = data.chunks(batch)
            keys = None if momentum_encoder is None else embed_chunks(momentum_encoder, chunks).documents
            losses = backward_through_chunks(
                accelerator,
                encoder,
                chunks,
                functools.partial(
                    checked_objective, batch=batch, recipe=recipe, temperature=temperature, keys=keys, queue=queue
                ),
                weight=1 / len(batches),
                synchronise=batch is batches[-1],
            )
            if keys is not None:
                positives = keys.float().unflatten(0, (-1, len(batch.names)))[1]
                queue.push(rows_of_all_processes(positives), rows_of_all_processes(batch.concepts))
            meter.add(losses, batch)
        grad_norm = accelerator.clip_grad_norm_(encoder.parameters(), recipe.max_grad_norm)
        check_grad_norm(grad_norm, batches, recipe)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        progress.step += 1
        bar.update()
        if momentum_encoder is not None:
            follow(momentum_encoder, accelerator.unwrap_model(encoder), recipe.queue_momentum)
        if recipe.ema_decay:
            follow(kept_model, accelerator.unwrap_model(encoder).model, recipe.ema_decay)
        if progress.step % recipe.log_steps == 0:
            entry = meter.read() | {"grad_norm": float(grad_norm), "learning_rate": schedule.get_last_lr()[0]}
            accelerator.log(entry, step=progress.step)
            bar.set_postfix({name: f"{value:.3g}" for name, value in entry.items()})
        if progress.step % recipe.eval_steps == 0 or progress.step == total_steps:
            evaluate()
            encoder.train()
        stopped = accelerator.check_trigger()
        if progress.step % recipe.save_steps == 0 or progress.step == total_steps or stopped:
            save_checkpoint(accelerator, folder / "checkpoints", progress.step, run, recipe.keep_checkpoints)
        if stopped and progress.step < total_steps:
            accelerator.print(f"stopped by SIGTERM after step {progress.step}; go on with --resume true")
            raise SystemExit(EXIT_CODE_OF_SIGTERM)
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
            rate = recipe.learning_rate if "sentence_encoder" in name else document_rate
            decay = recipe.weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((rate, decay), []).append(parameter)
    return [{"params": params, "lr": rate, "weight_decay": decay} for (rate, decay), params in groups.items()]


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
