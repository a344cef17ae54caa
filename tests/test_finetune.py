"""Fine-tuning end to end, on a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import pipeline

from modeling_hmde import HMDEForSequenceClassification
from training import finetune

TEXTS = {"animals": "The cat sat on the mat. The dog did see it.", "weather": "It was warm there. It was 30 degrees!"}


@pytest.fixture
def folder(model, tokenizer, tmp_path) -> Path:
    """A saved HMDE and labelled texts in English."""
    model.save_pretrained(tmp_path / "hmde")
    tokenizer.save_pretrained(tmp_path / "hmde")
    lines = [f"{label}\t{text} {number}" for number in range(8) for label, text in TEXTS.items()]
    for part in ("train", "dev"):
        (tmp_path / f"en.{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def arguments(folder: Path, output: str = "classifier", **changes: object) -> list[str]:
    values = {"model": folder / "hmde", "data": folder, "output": folder / output}
    values |= {"learning_rate": 1e-2, "warmup_steps": 1, "epochs": 3, "gradient_accumulation_steps": 2}
    return [part for name, value in (values | changes).items() for part in (f"--{name}", str(value))]


def test_a_run_leaves_a_classifier_that_a_pipeline_opens(folder):
    finetune.main(arguments(folder, epochs=6))
    classify = pipeline("text-classification", model=str(folder / "classifier"), trust_remote_code=True)
    assert [found["label"] for found in classify(list(TEXTS.values()))] == list(TEXTS)
    assert ModelCard.load(folder / "classifier" / "README.md").data.pipeline_tag == "text-classification"


def test_training_stops_when_the_dev_loss_no_longer_falls_and_keeps_the_best_epoch(folder, monkeypatch):
    losses = iter([3.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    weights = []
    evaluation_loop = finetune.Trainer.evaluation_loop

    def evaluate_as_told(trainer, *args, **kwargs):
        weights.append(trainer.model.classifier.weight.detach().clone())
        output = evaluation_loop(trainer, *args, **kwargs)
        output.metrics["eval_loss"] = next(losses)
        return output

    monkeypatch.setattr(finetune.Trainer, "evaluation_loop", evaluate_as_told)
    finetune.main(arguments(folder, epochs=7, patience=2))
    assert len(weights) == 5  # four epochs, and the best again
    kept = HMDEForSequenceClassification.from_pretrained(folder / "classifier").classifier.weight
    assert torch.equal(kept, weights[1])


def test_a_resumed_run_ends_as_an_uninterrupted_one(folder, monkeypatch):
    finetune.main(arguments(folder, "whole"))

    class Interrupted(Exception):
        pass

    def interrupt(trainer, *args, **kwargs):
        if trainer.state.epoch >= 2:
            raise Interrupted
        return evaluate(trainer, *args, **kwargs)

    evaluate = finetune.Trainer.evaluate
    with monkeypatch.context() as patch:
        patch.setattr(finetune.Trainer, "evaluate", interrupt)
        with pytest.raises(Interrupted):
            finetune.main(arguments(folder, "halved"))
    finetune.main(arguments(folder, "halved", resume="true"))
    whole, halved = (HMDEForSequenceClassification.from_pretrained(folder / name) for name in ("whole", "halved"))
    for name, value in whole.state_dict().items():
        assert torch.equal(halved.state_dict()[name], value), name


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("en.train.tsv", "no tab here", r"en\.train\.tsv, line 17"),
        ("en.dev.tsv", "sports\tA game.", "label 'sports'"),
    ],
)
def test_a_bad_file_is_refused_before_any_training(folder, file, line, message):
    with (folder / file).open("a", encoding="utf-8") as lines:
        lines.write(line + "\n")
    with pytest.raises(ValueError, match=message):
        finetune.main(arguments(folder))
    assert not (folder / "classifier-training").exists()


def test_an_unknown_key_is_an_error(folder, capsys):
    with pytest.raises(SystemExit):
        finetune.main(arguments(folder, learning_speed=1))
    assert "learning_speed" in capsys.readouterr().err
