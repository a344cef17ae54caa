"""What the loop does unless a recipe says otherwise: recipes on users' disks rely on it."""

from __future__ import annotations

from dataclasses import asdict

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
        "keep_checkpoints": 2,
        "log_steps": 10,
        "log_with": None,
        "resume": False,
        "push_to_hub": None,
        "seed": 42,
    }
