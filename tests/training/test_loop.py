"""A step over several batches, and what the loop shares with accelerate: settings of the process, and trackers."""

from __future__ import annotations

import pytest
import torch
from accelerate import tracking
from accelerate.tracking import TensorBoardTracker
from accelerate.utils import LoggerType

from tests.pretraining import gradients, options
from training import pretrain
from training.loop.loop import Loop, accelerator_of
from training.loop.options import LoopOptions


def test_a_run_has_its_own_precision_after_another_of_the_same_process(tmp_path) -> None:
    found = []
    for precision in ("bf16", "no"):
        accelerator = accelerator_of(LoopOptions(output=str(tmp_path / "model"), mixed_precision=precision))
        found.append((accelerator.mixed_precision, accelerator.state.mixed_precision))
    assert found == [("bf16", "bf16"), ("no", "no")]


def test_the_gradient_of_a_step_is_the_mean_of_those_of_its_batches(
    corpus_folder, labse, tmp_path, monkeypatch
) -> None:
    def of_steps(count: int, batches: int) -> list[dict[str, torch.Tensor]]:
        still = {"learning_rate": 1e-12, "sentence_dropout": 0.0}
        still["architecture"] = '{"num_document_attention_heads": 4, "document_dropout": 0.0, "max_sentences": 4}'
        changes = still | {"max_steps": count, "gradient_accumulation_steps": batches}
        arguments = options(corpus_folder, labse, tmp_path / str(count), **changes)
        return gradients(pretrain.main, monkeypatch, 1, arguments, tmp_path / f"of-{count}")

    (step,), (first, second) = of_steps(1, batches=2), of_steps(2, batches=1)
    for name, gradient in step.items():
        torch.testing.assert_close(gradient, (first[name] + second[name]) / 2, rtol=1e-3, atol=1e-6)


def test_a_warm_up_that_the_run_does_not_reach_the_end_of_is_told(
    corpus_folder, labse, tmp_path, monkeypatch, caplog
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "run", stop)
    for warmup_steps, told in ((4, False), (20, True)):
        arguments = options(corpus_folder, labse, tmp_path / "model", max_steps=5, warmup_steps=warmup_steps)
        with pytest.raises(KeyboardInterrupt), caplog.at_level("WARNING"):
            pretrain.main(arguments)
        assert ("the run has 5 steps, so that the learning rate ends at 0.25 of learning_rate" in caplog.text) == told


@pytest.mark.parametrize(("name", "package"), [("wandb", "wandb"), ("all", "tensorboard")])
def test_a_tracker_that_is_not_installed_is_named_before_training(
    corpus_folder, labse, tmp_path, monkeypatch, name, package
) -> None:
    monkeypatch.setattr(tracking, "_available_trackers", [LoggerType.TENSORBOARD] if name == "wandb" else [])
    with pytest.raises(ValueError, match=f"log_with is '{name}', but {package} is not installed; run pip install"):
        pretrain.main(options(corpus_folder, labse, tmp_path / "model", log_with=name))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "count"), [(None, 0), ("all", 1), ("tensorboard", 1)])
def test_trackers_that_there_are_and_none_are_let_through(tmp_path, monkeypatch, name, count) -> None:
    monkeypatch.setattr(tracking, "_available_trackers", [LoggerType.TENSORBOARD])
    assert len(accelerator_of(LoopOptions(output=str(tmp_path / "model"), log_with=name)).log_with) == count


@pytest.mark.parametrize("fails", [False, True])
def test_trackers_end_once_also_after_an_error(corpus_folder, labse, tmp_path, monkeypatch, fails) -> None:
    ended, finish = [], TensorBoardTracker.finish
    monkeypatch.setattr(TensorBoardTracker, "finish", lambda tracker: ended.append(tracker) or finish(tracker))

    def fail(*_: object) -> None:
        raise KeyError("a mistake of ours")

    if fails:
        monkeypatch.setattr(Loop, "train_step", fail)
    arguments = options(corpus_folder, labse, tmp_path / "model", max_steps=1, log_with="tensorboard")
    if fails:
        with pytest.raises(KeyError):
            pretrain.main(arguments)
    else:
        pretrain.main(arguments)
    assert len(ended) == 1
