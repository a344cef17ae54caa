"""A tiny folder of parallel text, and the options of runs on it, by the modules that are their commands."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from accelerate import Accelerator

from tests.pretraining import as_arguments

SENTENCES = {
    "de": ("The {0} is warm and {1}.", "Die {0} ist warm und {1}."),
    "fr": ("See the {0} on the {1}!", "Le {0} dort sur {1}!"),
}


def write_table(path: Path, rows: list[dict[str, str | None]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = ["id", "first", "second", "split"]
    parquet.write_table(pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in columns}), path)


def write_pairs(folder: Path, num_pairs: int = 16, num_dev: int = 4) -> Path:
    """English beside German, and half as many beside French."""
    for (language, templates), count in zip(SENTENCES.items(), (num_pairs, num_pairs // 2)):
        rows = []
        for index in range(count):
            words = chr(ord("a") + index) * 3, chr(ord("z") - index) * 2
            first, second = (template.format(*words) for template in templates)
            split = "dev" if index < num_dev else "train"
            rows.append({"id": f"{language}{index}", "first": first, "second": second, "split": split})
        write_table(folder / "pairs" / f"en-{language}.parquet", rows)
    return folder


STUDENT = "replications.sentences.pretrain"
TMDE = "replications.t_mde.pretrain"

TMDE_ARCHITECTURE = {
    "model_type": "roberta-prelayernorm",
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "hidden_act": "relu",
    "max_position_embeddings": 200,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "type_vocab_size": 1,
}
CTMDE_OPTIONS = {
    "losses": {"translation": {"weight": 0.5}, "distance": {"weight": 0.25}},
    "architecture": TMDE_ARCHITECTURE,
    "vocabulary_size": 60,
    "max_length": 100,
    "sinusoidal_positions": True,
    "schedule": "inverse_sqrt",
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def logged_values(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float]]:
    """Where all that runs log from now on will stand, by name, step after step."""
    logged: dict[str, list[float]] = {}

    def note(accelerator: Accelerator, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            logged.setdefault(name, []).append(value)

    monkeypatch.setattr(Accelerator, "log", note)
    return logged


def train(module: str, arguments: list[str]) -> None:
    """Run the command of a module."""
    importlib.import_module(module).main(arguments)


def options(pairs: Path, encoder: Path | None, output: Path, **changes: object) -> list[str]:
    values: dict[str, object] = {
        "corpus": pairs,
        "output": output,
        "batch_size": 4,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-3,
        "warmup_steps": 2,
        "epochs": 4,
        "eval_steps": 4,
        "save_steps": 4,
        "log_steps": 1,
    }
    values |= {} if encoder is None else {"sentence_encoder": encoder}
    values |= changes
    return as_arguments({k: v if isinstance(v, (str, Path)) else json.dumps(v) for k, v in values.items()})
