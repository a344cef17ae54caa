"""The training loop: batches to losses to weights. It knows no documents; a stage hands it all that it trains on."""

from __future__ import annotations

import copy
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import (
    DistributedDataParallelKwargs,
    DistributedType,
    InitProcessGroupKwargs,
    ProjectConfiguration,
)
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import get_scheduler
from transformers.utils import logging

from hmde.common.device import use_all_cores
from hmde.common.files import folder_written_whole, locked
from training.hub import upload_folder
from training.loop.cached_gradients import (
    Chunk,
    Embeddings,
    backward_through_chunks,
    cut_into_chunks,
)
from training.loop.checkpoints import (
    check_output,
    checkpoints,
    describe_run,
    leave_out_frozen_weights,
    load_newest_checkpoint,
    save_checkpoint,
    sigterm_lets_the_step_finish,
    training_folder,
)
from training.loop.distributed import copy_weights
from training.loop.finite import check_grad_norm, check_losses
from training.loop.meter import Meter, Work
from training.loop.options import LoopOptions

logger = logging.get_logger(__name__)

EXIT_CODE_OF_SIGTERM = 143  # 128 + 15, as a shell reports it


class Batch(Protocol):
    """What the loop asks of a batch."""

    @property
    def rows(self) -> Chunk:
        """What is embedded. The rows that reach every trained parameter come last."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the examples, for messages. Row i belongs to example i, modulo the number of examples."""


class Batches(Protocol):
    """What the loop asks of the training data."""

    fingerprint: str  # of the data, which must be the same when a run is resumed
    steps_per_epoch: int

    def from_step(self, first_step: int) -> Iterator[list[Any]]:
        """The batches of each optimizer step, without end, on the device of this process."""


BatchType = TypeVar("BatchType", bound=Batch)
OptionsType = TypeVar("OptionsType", bound=LoopOptions)


@dataclass
class Stage(Generic[BatchType]):
    """What is trained, on what data, towards which losses.

    Args:
        encoder: from a chunk to its embeddings; not yet distributed.
        parameter_groups: for the optimizer.
        batches: the training data.
        losses: of a batch, by name, each a mean over its examples. Their sum is minimised.
        work: what a batch gives this process to do.
        evaluate: scores of an encoder on the dev split, by name. Called on the main process alone.
        criterion: the score by which the best model is chosen; higher is better.
        save: an encoder's model, into a folder.
        fingerprints: by name, of what else the losses depend on, which must be the same when a run is resumed.
    """

    encoder: nn.Module
    parameter_groups: list[dict[str, Any]]
    batches: Batches
    losses: Callable[[Embeddings, BatchType], dict[str, Tensor]]
    work: Callable[[BatchType], Work]
    evaluate: Callable[[nn.Module], dict[str, float]]
    criterion: str
    save: Callable[[nn.Module, Path], None]
    fingerprints: dict[str, Any] = field(default_factory=dict)


@dataclass
class Progress:
    """What a checkpoint must remember beside model, optimizer, schedule and random states.

    Args:
        criterion: the score by which the best step is chosen, whose model is kept; None keeps the last.
        step: optimizer steps taken.
        history: dev scores by step; step 0 is the untrained start.
    """

    criterion: str | None
    step: int = 0
    history: dict[int, dict[str, float]] = field(default_factory=dict)

    @property
    def kept_step(self) -> int:
        """The best step, the later of equals: a start that is perfect already must not undo the training."""
        if (criterion := self.criterion) is None:
            return max(self.history)
        return max(self.history, key=lambda step: (self.history[step][criterion], step))

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def accelerator_of(options: LoopOptions) -> Accelerator:
    """The processes and devices of this run, as `accelerate launch` configured them.

    Raises:
        ValueError: the tracker is unknown, or its package is not installed.
    """
    if not dist.is_initialized():  # accelerate keeps the settings of an earlier run of this process
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
    accelerator = Accelerator(
        mixed_precision=options.mixed_precision,
        log_with=options.log_with,
        project_config=ProjectConfiguration(logging_dir=str(training_folder(options.output) / "logs")),
        kwargs_handlers=[
            DistributedDataParallelKwargs(broadcast_buffers=False),  # the buffers are constants
            InitProcessGroupKwargs(timeout=timedelta(days=1)),  # they wait while one evaluates, or for another run
        ],
    )
    if options.log_with is not None and not accelerator.log_with:
        missing = "tensorboard" if options.log_with == "all" else options.log_with
        raise ValueError(
            f"log_with is {options.log_with!r}, but {missing} is not installed; run pip install {missing}, name "
            "another tracker, or leave log_with out"
        )
    if accelerator.device.type == "cpu":
        num_processes = int(os.environ.get("LOCAL_WORLD_SIZE", accelerator.num_processes))
        threads = use_all_cores(num_processes)
        accelerator.print(f"training on the CPU, {num_processes} process(es) of {threads} thread(s) each")
    return accelerator


class Loop(Generic[BatchType]):
    """A run: `run()` trains to the end, or to a signal, and leaves the model to keep in the training folder, `kept`."""

    def __init__(self, stage: Stage[BatchType], options: LoopOptions, accelerator: Accelerator) -> None:
        self.stage = stage
        self.options = options
        self.accelerator = accelerator
        self.folder = training_folder(options.output)
        self.progress = Progress(stage.criterion if options.keep == "best" else None)
        self.meter = Meter(accelerator.num_processes)
        # FSDP cuts the weights into pieces, so a whole copy is evaluated and saved.
        sharded = accelerator.distributed_type == DistributedType.FSDP
        self.whole_copy = copy.deepcopy(stage.encoder).requires_grad_(False).to(accelerator.device) if sharded else None
        all_steps = options.epochs * stage.batches.steps_per_epoch
        self.total_steps = min(all_steps, options.max_steps or all_steps)
        if options.warmup_steps >= self.total_steps:
            reached = self.total_steps / options.warmup_steps
            logger.warning(
                f"warmup_steps is {options.warmup_steps}, but the run has {self.total_steps} steps, so that the "
                f"learning rate ends at {reached:.2g} of learning_rate; lower warmup_steps"
            )
        data, num_processes = stage.batches.fingerprint, accelerator.num_processes
        self.run_description = describe_run(asdict(options) | stage.fingerprints, data, stage.encoder, num_processes)
        leave_out_frozen_weights(accelerator)
        optimizer = torch.optim.AdamW(stage.parameter_groups, lr=options.learning_rate)
        self.encoder, self.optimizer = accelerator.prepare(stage.encoder, optimizer)
        self.schedule = get_scheduler(options.schedule, self.optimizer, options.warmup_steps, self.total_steps)
        accelerator.register_for_checkpointing(self.schedule, self.progress)

    def run(self) -> Progress:
        if self.options.resume:
            load_newest_checkpoint(self.accelerator, self.folder / "checkpoints", self.run_description)
        self.accelerator.init_trackers("pretrain", {key: str(value) for key, value in asdict(self.options).items()})
        if self.progress.step == 0:
            with self.meter.paused():
                self.evaluate()
        with tqdm(
            desc="training",
            total=self.total_steps,
            initial=self.progress.step,
            disable=not self.accelerator.is_main_process,
            unit="step",
        ) as bar:
            steps = self.stage.batches.from_step(self.progress.step)
            for batches in self.meter.waiting(islice(steps, self.total_steps - self.progress.step)):
                grad_norm = self.train_step(batches)
                self.progress.step += 1
                bar.update()
                step, last = self.progress.step, self.progress.step == self.total_steps
                if step % self.options.log_steps == 0:
                    entry = self.meter.read()
                    entry |= {"grad_norm": grad_norm, "learning_rate": float(self.schedule.get_last_lr()[0])}
                    self.accelerator.log(entry, step=step)
                    bar.set_postfix({name: f"{value:.3g}" for name, value in entry.items()})
                with self.meter.paused():
                    if step % self.options.eval_steps == 0 or last:
                        self.evaluate()
                    stopped = self.accelerator.check_trigger()
                    if step % self.options.save_steps == 0 or last or stopped:
                        self.save_checkpoint()
                if stopped and not last:
                    self.accelerator.print(f"stopped by SIGTERM after step {step}; resume with --resume true")
                    raise SystemExit(EXIT_CODE_OF_SIGTERM)
        self.accelerator.end_training()
        return self.progress

    def train_step(self, batches: list[BatchType]) -> float:
        """One optimizer step. Returns the norm of its gradient."""
        self.encoder.train()
        for batch in batches:
            losses = self.backward(batch, weight=1 / len(batches), synchronise=batch is batches[-1])
            self.meter.add(losses, self.stage.work(batch))
        max_norm = self.options.max_grad_norm or math.inf
        grad_norm = float(self.accelerator.clip_grad_norm_(self.encoder.parameters(), max_norm))
        # In fp16, the gradient scaler skips a step whose gradient is not finite.
        if self.options.mixed_precision != "fp16":
            check_grad_norm(grad_norm, [name for batch in batches for name in batch.names])
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        return grad_norm

    def backward(self, batch: BatchType, weight: float, synchronise: bool) -> dict[str, Tensor]:
        """Add the gradients of a batch. Returns its losses."""
        chunks = cut_into_chunks(batch.rows, self.options.max_tokens_per_chunk, self.accelerator.num_processes)

        def checked_losses(embeddings: Embeddings) -> dict[str, Tensor]:
            losses = self.stage.losses(embeddings, batch)
            check_losses(losses, embeddings, batch.names)
            return losses

        return backward_through_chunks(
            self.accelerator, self.encoder, chunks, checked_losses, weight=weight, synchronise=synchronise
        )

    def evaluate(self) -> None:
        """Score the model, and keep it if it is the one to keep so far. The untrained start counts as one."""
        encoder = self.accelerator.unwrap_model(self.encoder)
        if self.whole_copy is not None:
            copy_weights(self.whole_copy, encoder)
            encoder = self.whole_copy
        if self.accelerator.is_main_process:
            with self.accelerator.autocast():
                scores = self.stage.evaluate(encoder)
            step = self.progress.step
            self.accelerator.print(
                f"step {step}: " + ", ".join(f"{name} {score:.4f}" for name, score in scores.items())
            )
            self.accelerator.log({f"dev_{name}": score for name, score in scores.items()}, step=step)
            self.progress.history[step] = scores
            if step == self.progress.kept_step:
                with folder_written_whole(self.folder / "kept") as folder:
                    self.stage.save(encoder, folder)
        self.accelerator.wait_for_everyone()

    def save_checkpoint(self) -> None:
        save_checkpoint(self.accelerator, self.folder / "checkpoints", self.progress.step, self.run_description)


def check_options(options: LoopOptions) -> None:
    """Whether a run may begin: for commands that load much before.

    Raises:
        ValueError: the output is there already, or there is nothing to resume from.
    """
    check_output(options.output, checkpoints(training_folder(options.output) / "checkpoints"), options.resume)


def train_stage(
    options: OptionsType,
    make_stage: Callable[[OptionsType, Accelerator], Stage[Any]],
    write_card: Callable[[OptionsType, Path, Progress], None] | None,
) -> Progress:
    """A whole run: train a stage, and make the model that is kept, with its card, the output folder. On request it goes
    to the Hub.

    Args:
        options: the recipe.
        make_stage: from the recipe and the processes of the run.
        write_card: into the finished folder, if it gets one.

    Raises:
        ValueError: the output is there already, another process writes it, or there is nothing to resume from.
    """
    folder = training_folder(options.output)
    accelerator = accelerator_of(options)
    with locked(folder, wait=False) if accelerator.is_main_process else nullcontext():
        accelerator.wait_for_everyone()  # until the main process has the lock, so that no other run changes the folder
        check_options(options)
        loop = Loop(make_stage(options, accelerator), options, accelerator)
        with sigterm_lets_the_step_finish(accelerator):
            try:
                progress = loop.run()
            except BaseException:  # what was logged is not lost; processes that go on must not be waited for
                for tracker in accelerator.trackers:
                    tracker.finish()
                raise
        if accelerator.is_main_process:
            with folder_written_whole(options.output) as output:
                shutil.copytree(folder / "kept", output, dirs_exist_ok=True)
                if write_card is not None:
                    write_card(options, output, progress)
            unchanged = "" if progress.kept_step else "; no step was better on the dev split, so nothing was learnt"
            print(f"wrote {options.output}: the model of step {progress.kept_step} of {progress.step}{unchanged}")
            if options.push_to_hub:
                upload_folder(options.output, options.push_to_hub)
    return progress
