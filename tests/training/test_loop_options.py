"""What the loop does unless a recipe says otherwise: recipes on users' disks rely on it."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

import hmde.common.device
from training.loop.options import LoopOptions


def test_defaults() -> None:
    assert asdict(LoopOptions(output="model")) == {
        "output": "model",
        "epochs": 1,
        "max_steps": None,
        "batch_size": 2,
        "gradient_accumulation_steps": 64,
        "max_tokens_per_chunk": 32_768,
        "learning_rate": 1e-5,
        "schedule": "linear",
        "warmup_steps": 1000,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "mixed_precision": "no",
        "gradient_checkpointing": False,
        "compile": False,
        "num_workers": 0,
        "eval_steps": 500,
        "keep": "best",
        "save_steps": 500,
        "log_steps": 10,
        "log_with": None,
        "resume": False,
        "push_to_hub": None,
        "seed": 42,
    }


@pytest.mark.parametrize(("dtype", "precision"), [(torch.bfloat16, "bf16"), (torch.float32, "no")])
def test_auto_is_the_precision_that_this_machine_computes_fast_in(monkeypatch, dtype, precision) -> None:
    monkeypatch.setattr(hmde.common.device, "dtype_of", lambda name: {"auto": dtype}[name])
    assert LoopOptions(output="model", mixed_precision="auto").mixed_precision == precision
    assert LoopOptions(output="model", mixed_precision="fp16").mixed_precision == "fp16"
