"""Options of the training loop, the same for whatever it trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hmde.common.numbers import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Seed


@dataclass(kw_only=True)
class LoopOptions:
    """How the loop trains, whatever it trains."""

    output: str
    """Folder of the finished model, ready for the Hub. Checkpoints and logs go to `<output>-training`."""

    epochs: PositiveInt = 1
    """Passes over the training data."""

    max_steps: PositiveInt | None = None
    """Stop after this many optimizer steps, within `epochs`."""

    batch_size: PositiveInt = 2
    """Examples of one batch on one device. In-batch negatives come from the batches of all devices."""

    gradient_accumulation_steps: PositiveInt = 64
    """Batches of one optimizer step. They add no negatives."""

    max_tokens_per_chunk: PositiveInt = 32_768
    """Tokens that are encoded at once on one device (sentences, where sentence vectors are kept). Memory grows with it.
    A larger batch is cut into chunks, and its gradients are cached: that costs a second forward pass and changes no
    result."""

    learning_rate: PositiveFloat = 1e-5
    """Learning rate of the pretrained weights. It rises during the warm-up and then falls as `schedule` says."""

    schedule: Literal["linear", "inverse_sqrt"] = "linear"
    """How the learning rates fall after the warm-up: linearly to 0, or with the square root of the step (T-MDE)."""

    warmup_steps: NonNegativeInt = 1000
    """Optimizer steps over which the learning rates rise from 0."""

    weight_decay: NonNegativeFloat = 0.0
    """Weight decay of AdamW, on matrices only."""

    max_grad_norm: PositiveFloat | None = 1.0
    """Gradients are clipped to this norm; null does not clip."""

    mixed_precision: Literal["auto", "no", "bf16", "fp16"] = "no"
    """The dtype of activations. Weights are trained in float32. `auto` is bf16 where the GPU, or else the CPU, has
    native bf16 support, and no elsewhere: without it, bf16 is many times slower than float32."""

    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass, which saves memory."""

    compile: bool = False
    """Compile the sentence encoder with torch.compile. For GPUs."""

    num_workers: NonNegativeInt = 0
    """Processes that tokenize ahead."""

    eval_steps: PositiveInt = 500
    """Optimizer steps between evaluations on the dev split."""

    keep: Literal["best", "last"] = "best"
    """The step whose model is kept: the one with the best score on the dev split, in which the untrained start takes
    part, or the last."""

    save_steps: PositiveInt = 500
    """Optimizer steps between checkpoints, of which the last two are kept."""

    log_steps: PositiveInt = 10
    """Optimizer steps between log entries."""

    log_with: str | None = None
    """A tracker of Accelerate (tensorboard, wandb, mlflow ...), or none."""

    resume: bool = False
    """Resume from the last whole checkpoint of this output."""

    push_to_hub: str | None = None
    """Repository to upload the finished folder to."""

    seed: Seed = 42
    """Seed of initialisation, dropout, order and all random draws."""

    def __post_init__(self) -> None:
        if self.mixed_precision == "auto":  # what it stands for here goes into checkpoints and the card
            import torch  # takes seconds, which --help need not wait for

            from hmde.common.device import dtype_of

            self.mixed_precision = "bf16" if dtype_of("auto") == torch.bfloat16 else "no"
