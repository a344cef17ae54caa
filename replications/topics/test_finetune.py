"""Fine-tuning end to end, on a tiny model and texts of two kinds."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainerState

from hmde.common.command_line import options_from
from hmde.common.files import locked
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from replications.evaluate import main as evaluate
from replications.longformer.pretrain import convert
from replications.topics import finetune
from replications.trainer_runs import TrainerArguments, recipe_of_run
from tests.paths import REPOSITORY
from tests.pretraining import as_arguments, in_processes

ANIMALS, WEATHER = "The cat sat on the mat. The dog did see it {}.", "It was warm there. It was {} degrees!"
CONFIGURATIONS = REPOSITORY / "configuration" / "finetune"


@pytest.fixture
def folder(tmp_path: Path, labse: Path, tokenizer: HMDETokenizer) -> Path:
    """A pretrained HMDE in `hmde`, and files of labelled texts beside it."""
    model = HMDEForDocumentEmbedding.from_sentence_encoder(
        str(labse), sentence_pooling="mean", document_norm="pre", num_document_layers=1
    )
    model.save_pretrained(tmp_path / "hmde")
    tokenizer.save_pretrained(tmp_path / "hmde")
    write_texts(tmp_path / "en.train.tsv", 8, animals=ANIMALS, weather=WEATHER)
    write_texts(tmp_path / "en.dev.tsv", 4, animals=ANIMALS, weather=WEATHER)
    write_texts(tmp_path / "en.test.tsv", 2, animals=ANIMALS, weather=WEATHER)
    write_texts(tmp_path / "de.test.tsv", 2, animals="Der Hund sah {} die Katze.", weather="Sie lag {} in der Sonne.")
    return tmp_path


def write_texts(path: Path, number: int, **texts: str) -> None:
    lines = [f"{label}\t{text.format(place)}\n" for place in range(number) for label, text in texts.items()]
    path.write_text("".join(lines), encoding="utf-8")


def mislabel(path: Path) -> None:
    """Labels that contradict the others: the better the model, the higher its loss."""
    write_texts(path, 4, animals=WEATHER, weather=ANIMALS)


def fine_tune(folder: Path, output: str = "classifier", **changes: object) -> dict[str, Any]:
    options: dict[str, object] = {
        "model": folder / "hmde",
        "data": folder,
        "output": folder / output,
        "test_languages": '["en", "de"]',
        "trainer.num_train_epochs": 3,
        "trainer.gradient_accumulation_steps": 2,
        "trainer.learning_rate": 1e-2,
        "trainer.max_grad_norm": 1,
        "trainer.warmup_steps": 1,
    }
    finetune.main(as_arguments(options | changes))
    return json.loads((folder / output / "results.json").read_text(encoding="utf-8"))


def losses(results: dict[str, Any]) -> list[float]:
    return [epoch["eval_loss"] for epoch in results["epochs"]]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"trainer.bf16": "true", "trainer.activation_checkpointing": "true", "trainer.report_to": "tensorboard"},
    ],
    ids=["plain", "bf16-checkpointed-tracked"],
)
def test_the_folder_holds_a_classifier_that_learnt_and_the_scores_it_has(folder: Path, changes: dict[str, str]) -> None:
    results = fine_tune(folder, **{"trainer.num_train_epochs": 8}, **changes)
    assert losses(results)[-1] < losses(results)[0] / 2

    model = AutoModelForSequenceClassification.from_pretrained(folder / "classifier").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / "classifier")
    assert model.config.id2label == {0: "animals", 1: "weather"}
    for name in ("en.dev", "en.test", "de.test"):
        lines = [line.split("\t") for line in (folder / f"{name}.tsv").read_text(encoding="utf-8").splitlines()]
        with torch.no_grad():
            best = [int(model(**tokenizer(text, return_tensors="pt")).logits.argmax()) for _, text in lines]
        right = [model.config.id2label[label] == expected for label, (expected, _) in zip(best, lines)]
        assert results["scores"][name]["accuracy"] == sum(right) / len(right)
    assert results["scores"]["en.test"]["accuracy"] == 1.0
    assert results["scores"]["average without en"] == results["scores"]["de.test"]

    card = ModelCard.load(folder / "classifier" / "README.md")
    assert card.data.pipeline_tag == "text-classification"
    assert f"| de.test | {results['scores']['de.test']['accuracy']:.3f} |" in card.text
    files = {path.name for path in (folder / "classifier").iterdir()}
    assert {"modeling_hmde.py", "tokenizer.json", "model.safetensors"} <= files
    assert not any("optimizer" in name or "checkpoint" in name or "training" in name for name in files)
    assert any((folder / "classifier-training").rglob("events.out.tfevents.*")) == ("trainer.report_to" in changes)


def test_windows_train_the_sentence_encoder_and_the_classifier_of_the_mean_of_their_vectors(
    folder: Path, labse: Path
) -> None:
    results = fine_tune(folder, model=labse, windows="true", **{"trainer.num_train_epochs": 8})
    assert losses(results)[-1] < losses(results)[0]

    model = AutoModelForSequenceClassification.from_pretrained(folder / "classifier").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / "classifier")
    row = tokenizer("the cat sat on the mat " * 60)["input_ids"]
    starts = [*(place for place, token in enumerate(row) if token == tokenizer.start_token_id), len(row)]
    windows = [row[begin:end] for begin, end in itertools.pairwise(starts)]
    assert [len(window) for window in windows[:3]] == [128, 128, 128]
    with torch.no_grad():
        document, *parts = (model(torch.tensor([tokens])).logits[0] for tokens in (row, *windows))
    assert torch.allclose(document, torch.stack(parts).mean(dim=0), atol=1e-5)  # the classifier is linear


def test_a_classifier_reads_as_many_sentences_as_asked_for(folder: Path) -> None:
    fine_tune(folder, max_sentences=2, **{"trainer.num_train_epochs": 1})
    model = AutoModelForSequenceClassification.from_pretrained(folder / "classifier")
    tokenizer = AutoTokenizer.from_pretrained(folder / "classifier")
    assert model.config.max_sentences == tokenizer.max_sentences == 2
    assert tokenizer("One. Two. Three. Four.", return_truncated=True)["num_truncated_sentences"] == 2


def test_without_test_languages_only_dev_is_scored(folder: Path) -> None:
    assert list(fine_tune(folder, test_languages="[]", **{"trainer.num_train_epochs": 1})["scores"]) == ["en.dev"]


def test_training_stops_when_patience_is_at_its_end_and_the_best_model_is_kept(folder: Path) -> None:
    mislabel(folder / "en.dev.tsv")
    to_the_end = fine_tune(folder, "whole", **{"trainer.num_train_epochs": 4}, early_stopping_patience="null")
    assert len(losses(to_the_end)) == 4
    results = fine_tune(folder, **{"trainer.num_train_epochs": 9}, early_stopping_patience=2)
    assert len(losses(results)) == 3
    assert losses(results) == sorted(losses(results))

    model = AutoModelForSequenceClassification.from_pretrained(folder / "classifier").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / "classifier")
    labels, texts = zip(*(line.split("\t") for line in (folder / "en.dev.tsv").read_text().splitlines()))
    inputs = tokenizer(list(texts), padding=True, return_tensors="pt")
    with torch.no_grad():
        loss = model(**inputs, labels=torch.tensor([model.config.label2id[label] for label in labels])).loss
    assert loss.item() == pytest.approx(losses(results)[0], rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "chosen"),
    [
        ({}, 0),
        ({"trainer.load_best_model_at_end": "false"}, -1),
        ({"trainer.load_best_model_at_end": "false", "trainer.metric_for_best_model": "null"}, -1),
        ({"trainer.load_best_model_at_end": "false", "trainer.eval_strategy": "no"}, None),
    ],
    ids=["the-best", "the-last", "no-metric", "no-evaluation"],
)
def test_the_card_says_which_step_the_model_is_of(folder: Path, changes: dict[str, str], chosen: int | None) -> None:
    mislabel(folder / "en.dev.tsv")
    results = fine_tune(folder, early_stopping_patience="null", **changes)
    steps = [epoch["step"] for epoch in results["epochs"]]
    checkpoints = [int(path.name.split("-")[1]) for path in (folder / "classifier-training").glob("checkpoint-*")]
    last = max(steps or checkpoints)
    card = (folder / "classifier" / "README.md").read_text(encoding="utf-8")
    said = f"that of the last optimizer step, {last}."
    if chosen == 0:
        said = f"that of optimizer step {steps[0]} of {last}, chosen by its\nloss on dev, {losses(results)[0]:.4f}."
    assert said in card, card
    if chosen is not None:
        accuracy = results["scores"]["en.dev"]["accuracy"]
        assert accuracy == results["epochs"][chosen]["eval_accuracy"]


@pytest.mark.parametrize("dev_is_mislabelled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_resumed_run_ends_as_an_uninterrupted_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, dev_is_mislabelled: bool
) -> None:
    if dev_is_mislabelled:
        mislabel(folder / "en.dev.tsv")
    changes = {"trainer.num_train_epochs": 5, "early_stopping_patience": 2}
    whole = fine_tune(folder, "whole", **changes)

    evaluated = []
    evaluate_once = Trainer.evaluate

    def interrupted_once(trainer: Trainer, *args: Any, **kwargs: Any) -> dict[str, float]:
        evaluated.append(trainer.state.epoch)
        if evaluated == [1, 2, 3]:
            raise KeyboardInterrupt
        return evaluate_once(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "evaluate", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        fine_tune(folder, "halved", **changes)
    assert not (folder / "halved").exists()
    (folder / "halved-training" / "checkpoint-999").mkdir()  # as a kill leaves it
    halved = fine_tune(folder, "halved", resume="true", **changes)

    assert evaluated[3:] == ([3] if dev_is_mislabelled else [3, 4, 5])
    assert losses(halved) == losses(whole)
    assert halved["scores"] == whole["scores"]
    expected, found = weights_of(folder / "whole"), weights_of(folder / "halved")
    for name, weight in expected.items():
        assert torch.equal(found[name], weight), name


@pytest.fixture
def stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with one checkpoint, stopped in its second epoch."""
    evaluate_once = Trainer.evaluate

    def interrupted(trainer: Trainer, *args: Any, **kwargs: Any) -> dict[str, float]:
        if trainer.state.epoch == 2:
            raise KeyboardInterrupt
        return evaluate_once(trainer, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "evaluate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fine_tune(folder)
    return folder


@pytest.mark.parametrize(
    ("changes", "different"),
    [
        ({"trainer.learning_rate": 0.5}, r"trainer\.learning_rate was 0\.01 and is 0\.5"),
        ({"early_stopping_patience": 2}, "early_stopping_patience was 7 and is 2"),
        ({"max_sentences": 3}, "max_sentences was None and is 3"),
    ],
)
def test_a_run_of_another_recipe_is_not_resumed(stopped: Path, changes: dict[str, object], different: str) -> None:
    with pytest.raises(ValueError, match=f"classifier-training belongs to another run: {different}; start anew under"):
        fine_tune(stopped, resume="true", **changes)


def test_a_run_of_other_data_or_of_more_processes_is_not_resumed(
    stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(finetune.ClassifierArguments, "world_size", 2)
        with pytest.raises(ValueError, match="another run: number of processes was 1 and is 2; start anew"):
            fine_tune(stopped, resume="true")
    mislabel(stopped / "en.dev.tsv")
    with pytest.raises(ValueError, match=r"another run: en\.dev\.tsv was '\w+' and is '\w+'; start anew"):
        fine_tune(stopped, resume="true")
    (stopped / "classifier-training" / "run.json").unlink()
    with pytest.raises(ValueError, match=r"has no run\.json, which says of which run it is; start anew"):
        fine_tune(stopped, resume="true")


def test_what_no_step_depends_on_may_change_on_resume(stopped: Path) -> None:
    write_texts(stopped / "en.test.tsv", 3, animals=ANIMALS, weather=WEATHER)
    changes = {"trainer.logging_steps": 7, "trainer.save_total_limit": 3, "trainer.disable_tqdm": "true"}
    results = fine_tune(stopped, resume="true", test_languages="[en]", **changes)
    assert len(losses(results)) == 3


def weights_of(classifier: Path) -> dict[str, torch.Tensor]:
    return AutoModelForSequenceClassification.from_pretrained(classifier).state_dict()


@pytest.mark.parametrize("kind", ["hmde", pytest.param("encoder", marks=pytest.mark.slow)])
def test_accumulated_batches_have_the_loss_of_one(folder: Path, labse: Path, kind: str) -> None:
    first_losses = []
    for steps in (1, 4):
        fine_tune(
            folder,
            f"steps-{steps}",
            model=labse if kind == "encoder" else folder / "hmde",
            **{
                "trainer.num_train_epochs": 1,
                "trainer.learning_rate": 1e-12,
                "trainer.gradient_accumulation_steps": steps,
                "trainer.per_device_train_batch_size": 8 // steps,
            },
        )
        (state,) = (folder / f"steps-{steps}-training").glob("checkpoint-*/trainer_state.json")
        first_losses.append(json.loads(state.read_text())["log_history"][0]["loss"])
    assert first_losses[1] == pytest.approx(first_losses[0], rel=0.3)  # dropout differs


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("en.train.tsv", "no label", r"en\.train\.tsv, line 1: is of another form"),
        ("en.train.tsv", "animals\tA cat.", r"en\.train\.tsv\) have the labels \['animals'\]; a classifier needs two"),
        ("en.dev.tsv", "birds\tA bird.", r"en\.dev\.tsv has the label 'birds', which .*en\.train\.tsv does not know"),
        ("de.test.tsv", "birds\tA bird.", r"de\.test\.tsv has the label 'birds', which .*en\.train\.tsv does not"),
    ],
)
def test_a_bad_file_is_refused_before_training(folder: Path, file: str, content: str, message: str) -> None:
    (folder / file).write_text(f"{content}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        fine_tune(folder)
    assert not (folder / "classifier-training").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainer.num_train_epochs": 0}, r"num_train_epochs.*\n *Not of type PositiveFloat: 0"),
        ({"trainer.output_dir": "elsewhere"}, "unrecognized arguments: --trainer.output_dir"),
        ({"resume": "true"}, "classifier-training has no checkpoint"),
        ({"trainer.seed": -1}, r"seed.*\n *Not of type Seed: -1 does not conform to restriction v>=0"),
        ({"output": "."}, "exists; remove it and .*-training, name another output"),
        (
            {"trainer.metric_for_best_model": "speed"},
            "metric_for_best_model is 'speed'; it must be one of loss, accuracy, macro_f1",
        ),
        (
            {"trainer.eval_strategy": "no", "trainer.load_best_model_at_end": "false"},
            "trainer.eval_strategy is no, and without evaluation no step is the best; evaluate, or give",
        ),
        (
            {"trainer.eval_strategy": "no", "trainer.save_strategy": "no", "early_stopping_patience": "null"},
            "trainer.eval_strategy is no, and without evaluation no step is the best; evaluate, or give",
        ),
        (
            {"trainer.metric_for_best_model": "null", "trainer.load_best_model_at_end": "false"},
            "early_stopping_patience is 7, but trainer.metric_for_best_model is null, so that",
        ),
        ({"epochs": 3}, "epochs"),
        ({"model": "nowhere"}, "nowhere does not open"),
        ({"windows": "true"}, "hmde is an HMDE, which reads sentences; leave windows out"),
        ({"max_sentences": 9999}, r"max_sentences is 9999, but .*hmde reads \d+; give no more"),
        ({"model": "labse", "max_sentences": 2}, r"max_sentences is given, but .* is no HMDE and reads no sentences"),
    ],
)
def test_an_impossible_recipe_is_refused(folder: Path, labse: Path, changes: dict[str, object], message: str) -> None:
    if changes.get("model") == "labse":
        changes = changes | {"model": labse}
    with pytest.raises((ValueError, SystemExit), match=message):
        fine_tune(folder, **changes)


def test_an_unfinished_run_is_neither_continued_nor_replaced_unasked(folder: Path) -> None:
    checkpoint = folder / "classifier-training" / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    TrainerState(global_step=1).save_to_json(str(checkpoint / "trainer_state.json"))
    with pytest.raises(ValueError, match=r"has checkpoints of an earlier run.* resume it with --resume true"):
        fine_tune(folder)


def test_of_two_runs_into_one_output_the_second_is_refused(folder: Path) -> None:
    def second(_rank: int) -> None:
        with pytest.raises(ValueError, match=r"another process is writing .*classifier-training; wait for it, or name"):
            fine_tune(folder)

    with locked(folder / "classifier-training"):
        assert in_processes(1, second) == [0]
    assert not (folder / "classifier").exists()


@pytest.mark.parametrize("baseline", ["encoder", pytest.param("longformer", marks=pytest.mark.slow)])
def test_a_baseline_is_fine_tuned_and_stands_beside_the_hmde_in_the_report(
    folder: Path, labse: Path, baseline: str
) -> None:
    model = labse
    if baseline == "longformer":
        model = folder / "longformer"
        for part in convert(str(labse), max_length=600, attention_window=16):
            part.save_pretrained(model)
    with (folder / "en.train.tsv").open("a", encoding="utf-8") as file:
        file.write(f"animals\t{'The cat sat on the mat. ' * 200}\n")  # more than either can read
    results = fine_tune(folder, "baseline", model=model, **{"trainer.num_train_epochs": 8})
    assert losses(results)[-1] < losses(results)[0] / 2
    card = (folder / "baseline" / "README.md").read_text(encoding="utf-8")
    assert "hmde" not in card.lower().replace(str(folder).lower(), "").replace("format: hmde", "")
    assert "trust_remote_code" not in card

    fine_tune(folder, "hmde-classifier", **{"trainer.num_train_epochs": 1})
    recipe = {
        "output": str(folder / "report"),
        "systems": {"bm25": {"kind": "bm25"}},
        "finetuned_classification": {
            "topics": {
                "data": str(folder),
                "test_languages": ["en", "de"],
                "models": {baseline: str(folder / "baseline"), "hmde": str(folder / "hmde-classifier")},
            }
        },
    }
    (folder / "report.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    evaluate(["--config", str(folder / "report.yaml")])
    found = json.loads((folder / "report" / "results.json").read_text(encoding="utf-8"))["tasks"]["topics"]
    assert found.keys() == {baseline, "hmde"}
    for language in ("en", "de"):
        measured = found[baseline]["rows"][f"en-{language}"]
        assert {name: measured[name] for name in ("accuracy", "macro_f1")} == results["scores"][f"{language}.test"]


def test_the_recipe_for_mldoc_is_the_papers() -> None:
    recipe = options_from(finetune.FinetuneRecipe, ["--config", str(CONFIGURATIONS / "mldoc.yaml")])
    trainer = recipe.trainer
    assert (trainer.learning_rate, trainer.weight_decay, trainer.warmup_steps) == (2e-5, 0.0, 200)
    assert (trainer.per_device_train_batch_size, trainer.gradient_accumulation_steps) == (4, 8)
    assert (trainer.num_train_epochs, recipe.early_stopping_patience) == (50, 7)
    defaults = finetune.ClassifierArguments().to_dict()
    without = {"accelerator_config": None}  # which a device that was asked for has changed
    assert trainer.to_dict() | without == defaults | without
    assert trainer.max_grad_norm == 0
    assert (recipe.train_languages, recipe.format) == (["en"], "replications.datasets.mldoc")


@pytest.mark.parametrize("name", ["paper", "licensed"])
def test_mldoc_is_read_alike_by_fine_tuning_and_by_evaluation(name: str) -> None:
    recipe = yaml.safe_load((CONFIGURATIONS / "mldoc.yaml").read_text(encoding="utf-8"))
    file = CONFIGURATIONS.parent / "evaluate" / f"{name}.yaml"
    task = yaml.safe_load(file.read_text(encoding="utf-8"))["finetuned_classification"]["mldoc-finetuned"]
    assert (recipe["data"], recipe["format"]) == (task["data"], task["format"])
    assert {*recipe["test_languages"]} == {*task["test_languages"]}


def test_the_sample_has_every_file_that_its_recipe_reads() -> None:
    file = CONFIGURATIONS / "sample.yaml"
    recipe = options_from(finetune.FinetuneRecipe, ["--config", str(file)])
    recipe.data = str(CONFIGURATIONS.parent.parent / recipe.data)
    train, dev, tests = finetune.read(recipe)
    assert (len(train), len(dev), len(tests)) == (1, 1, len(recipe.test_languages))


def test_results_hold_the_arguments_of_the_trainer_that_were_changed() -> None:
    @dataclass
    class Recipe:
        model: str
        trainer: TrainerArguments = field(default_factory=lambda: TrainerArguments(learning_rate=2e-5))

    unchanged = TrainerArguments(use_cpu=True).changed()
    assert "learning_rate" not in unchanged
    assert unchanged["save_total_limit"] == 1
    recipe = Recipe("hmde")
    recipe.trainer.use_cpu = True
    assert recipe_of_run(recipe) == {"model": "hmde", "trainer": unchanged | {"learning_rate": 2e-5}}
