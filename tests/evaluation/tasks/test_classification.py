"""Zero-shot classification: the protocols `frozen` and `finetuned` on texts whose scores can be worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoTokenizer, BatchEncoding, BertForSequenceClassification

from evaluation.tasks.classification import predict
from modeling_hmde import HMDEForSequenceClassification, HMDETokenizer
from tests.evaluation.running import evaluated
from tests.paths import written

CATS, DOGS = "the cat sat on the mat", "der hund"


def write_texts(path: Path, *lines: tuple[str, str]) -> None:
    written(path, "".join(f"{label}\t{text}\n" for label, text in lines))


@pytest.fixture
def recipe(tmp_path: Path, labse: Path) -> dict[str, Any]:
    """Two texts, two labels. In French, one text has the other's label."""
    data = tmp_path / "data"
    write_texts(data / "en.train.tsv", ("cats", CATS), ("dogs", DOGS))
    write_texts(data / "en.dev.tsv", ("cats", CATS), ("dogs", DOGS))
    write_texts(data / "en.test.tsv", ("cats", CATS), ("dogs", DOGS))
    write_texts(data / "fr.test.tsv", ("cats", CATS), ("cats", CATS), ("dogs", DOGS), ("dogs", CATS))
    return {
        "output": str(tmp_path / "out"),
        "systems": {
            "base": {"kind": "first", "model": str(labse), "pooling": "mean"},
            "mean": {"kind": "sentences", "model": str(labse), "pooling": "mean"},
        },
        "classification": {"topics": {"data": str(data), "test_languages": ["en", "fr"]}},
    }


def made_to_tell_apart(labse: Path, cats: BatchEncoding, dogs: BatchEncoding) -> HMDEForSequenceClassification:
    """A classifier whose weights are the difference of two documents."""
    model = HMDEForSequenceClassification.from_sentence_encoder(
        str(labse), sentence_pooling="mean", document_norm="pre", num_document_layers=1
    )
    model.config.id2label = {0: "cats", 1: "dogs"}
    model.config.label2id = {"cats": 0, "dogs": 1}
    with torch.no_grad():
        first, second = (model.hmde(**inputs).pooler_output[0] for inputs in (cats, dogs))
        model.classifier.weight.copy_(torch.stack([first - second, second - first]))
        middle = (first - second) @ (first + second) / 2
        model.classifier.bias.copy_(torch.stack([-middle, middle]))
    return model


@pytest.fixture
def classifier(labse: Path, tokenizer: HMDETokenizer) -> HMDEForSequenceClassification:
    return made_to_tell_apart(labse, *(tokenizer(text, return_tensors="pt") for text in (CATS, DOGS)))


@pytest.fixture
def saved(tmp_path: Path, classifier: HMDEForSequenceClassification, tokenizer: HMDETokenizer) -> Path:
    classifier.save_pretrained(tmp_path / "classifier")
    tokenizer.save_pretrained(tmp_path / "classifier")
    return tmp_path / "classifier"


ENGLISH = {"accuracy": 1.0, "macro_f1": 1.0, "documents": 2}
# Predicted cats, cats, dogs, cats. F1 of cats: precision 2/3, recall 1; of dogs: precision 1, recall 1/2.
FRENCH = {"accuracy": 0.75, "macro_f1": pytest.approx((0.8 + 2 / 3) / 2), "documents": 4}
AVERAGES = {
    "average": {"accuracy": 0.875, "macro_f1": pytest.approx((1 + (0.8 + 2 / 3) / 2) / 2)},
    "average, same language": {"accuracy": 1.0, "macro_f1": 1.0},
    "average, across languages": {"accuracy": 0.75, "macro_f1": pytest.approx((0.8 + 2 / 3) / 2)},
    "transfer gap": {"accuracy": 0.25, "macro_f1": pytest.approx(1 - (0.8 + 2 / 3) / 2)},
}


@pytest.mark.parametrize(("classifier", "chosen"), [("logistic_regression", 0.1), ("svm", 0.5)])
def test_the_frozen_protocol_gives_the_scores_worked_out_by_hand(
    recipe: dict[str, Any], classifier: str, chosen: float
) -> None:
    recipe["classification"]["topics"]["classifier"] = classifier
    results = evaluated(recipe)["tasks"]
    assert list(results) == ["topics-frozen"]
    for system in results["topics-frozen"].values():
        assert system["rows"] == {"en-en": ENGLISH, "en-fr": FRENCH}
        assert system["averages"] == AVERAGES
        assert system["chosen"] == {"en": chosen}


def test_every_train_language_meets_every_test_language(recipe: dict[str, Any]) -> None:
    task = recipe["classification"]["topics"] | {"train_languages": ["en", "fr"]}
    for part in ("train", "dev"):  # what is cats in English is dogs in French
        write_texts(Path(task["data"]) / f"fr.{part}.tsv", ("dogs", CATS), ("cats", DOGS))
    found = evaluated(recipe | {"classification": {"topics": task}})["tasks"]["topics-frozen"]["base"]
    accuracies = {row: scores["accuracy"] for row, scores in found["rows"].items()}
    assert accuracies == {"en-en": 1.0, "en-fr": 0.75, "fr-en": 0.0, "fr-fr": 0.25}
    assert {group: scores["accuracy"] for group, scores in found["averages"].items()} == {
        "average": 0.5,
        "average, same language": 0.625,
        "average, across languages": 0.375,
        "transfer gap": 0.25,
    }


def test_the_finetuned_protocol_gives_the_scores_worked_out_by_hand(recipe: dict[str, Any], saved: Path) -> None:
    recipe["classification"]["topics"]["finetuned"] = {"hmde": [str(saved)]}
    found = evaluated(recipe)["tasks"]["topics-finetuned"]["hmde"]
    assert found["rows"] == {"en-en": ENGLISH, "en-fr": FRENCH}
    assert found["averages"] == AVERAGES
    assert found["protocol"] == "fine-tuned on en, 1 run"


@pytest.mark.slow
def test_several_runs_of_a_classifier_are_averaged(recipe: dict[str, Any], saved: Path, tmp_path: Path) -> None:
    model = HMDEForSequenceClassification.from_pretrained(saved)
    model.config.id2label = {0: "dogs", 1: "cats"}  # wrong wherever the first is right
    model.config.label2id = {"dogs": 0, "cats": 1}
    model.save_pretrained(tmp_path / "other")
    HMDETokenizer.from_pretrained(saved).save_pretrained(tmp_path / "other")
    recipe["classification"]["topics"]["finetuned"] = {"hmde": [str(saved), str(tmp_path / "other")]}
    found = evaluated(recipe)["tasks"]["topics-finetuned"]["hmde"]
    assert found["rows"]["en-fr"]["accuracy"] == 0.5
    assert found["rows"]["en-fr"]["accuracy_sd"] == pytest.approx(0.5 / math.sqrt(2))
    assert found["protocol"] == "fine-tuned on en, 2 runs"


@pytest.mark.slow
def test_a_language_with_a_region_is_the_same_language_as_itself(recipe: dict[str, Any]) -> None:
    task = recipe["classification"]["topics"] | {"train_languages": ["pt-BR"], "test_languages": ["pt-BR", "fr"]}
    for part in ("train", "dev", "test"):
        write_texts(Path(task["data"]) / f"pt-BR.{part}.tsv", ("cats", CATS), ("dogs", DOGS))
    found = evaluated(recipe | {"classification": {"topics": task}})["tasks"]["topics-frozen"]["base"]
    assert found["averages"] == AVERAGES


@pytest.mark.slow
def test_a_classifier_of_transformers_is_tested_too(recipe: dict[str, Any], labse: Path, tmp_path: Path) -> None:
    labels = {"id2label": {0: "cats", 1: "dogs"}, "label2id": {"cats": 0, "dogs": 1}}
    model = BertForSequenceClassification.from_pretrained(labse, **labels)
    tokenizer = AutoTokenizer.from_pretrained(labse, model_max_length=512)
    model.save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    texts = [CATS, DOGS, "hund " * 700, ""]
    expected = []
    for text in texts:
        with torch.no_grad():
            logits = model.eval()(**tokenizer(text, truncation=True, max_length=512, return_tensors="pt")).logits
        expected.append(model.config.id2label[int(logits.argmax())])
    assert predict(model, AutoTokenizer.from_pretrained(tmp_path / "bert"), texts, "en") == expected
    recipe["classification"]["topics"]["finetuned"] = {"bert": [str(tmp_path / "bert")]}
    assert "topics-finetuned" in evaluated(recipe)["tasks"]


@pytest.mark.slow
def test_a_card_gets_the_results_of_its_own_model_and_their_task(
    recipe: dict[str, Any], saved: Path, labse: Path, tmp_path: Path
) -> None:
    folder, labels = tmp_path / "bert", {"id2label": {0: "cats", 1: "dogs"}, "label2id": {"cats": 0, "dogs": 1}}
    BertForSequenceClassification.from_pretrained(labse, **labels).save_pretrained(folder)
    AutoTokenizer.from_pretrained(labse).save_pretrained(folder)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n\n# A model\n", encoding="utf-8")
    recipe |= {"systems": {"bert": {"kind": "first", "model": str(folder), "pooling": "mean"}}, "model_cards": ["bert"]}
    # The classifier of that name is another model first, then the very model of the system.
    for classifier, tasks in ((saved, {"topics-frozen"}), (folder, {"topics-frozen", "topics-finetuned"})):
        recipe["classification"]["topics"]["finetuned"] = {"bert": [str(classifier)]}
        results = evaluated(recipe)["tasks"]
        assert list(results["topics-frozen"]["bert"]["models"]) == [str(folder)]
        assert list(results["topics-finetuned"]["bert"]["models"]) == [str(classifier)]
        in_card = ModelCard.load(folder / "README.md").data.eval_results
        assert {one.dataset_type for one in in_card} == tasks
        assert {one.task_type for one in in_card} == {"text-classification"}


@pytest.mark.slow
def test_each_protocol_has_a_table_that_names_it(recipe: dict[str, Any], saved: Path) -> None:
    recipe["classification"]["topics"] |= {"finetuned": {"hmde": [str(saved)]}, "measure": "macro_f1"}
    evaluated(recipe)
    table = (Path(recipe["output"]) / "report.md").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith("macro_f1 on topics-frozen, frozen vectors, logistic regression") for line in table)
    assert "macro_f1 on topics-finetuned, fine-tuned on en, 1 run" in table
    assert table.count("| en-fr | 0.733 | 0.733 |") == 1
    assert table.count("| en-fr | 0.733 |") == 1


def test_predictions_equal_those_of_one_text_at_a_time(
    classifier: HMDEForSequenceClassification, tokenizer: HMDETokenizer, documents: list[str]
) -> None:
    texts = [CATS, *documents, DOGS, "", "hund " * 300]
    expected = [
        ["cats", "dogs"][int(classifier(**tokenizer(text, language="de", return_tensors="pt")).logits.argmax())]
        for text in texts
    ]
    assert set(expected) == {"cats", "dogs"}
    assert predict(classifier, tokenizer, texts, "de") == expected


def test_a_classifier_whose_encoder_marks_no_start_reads_its_sentences(labse: Path, documents: list[str]) -> None:
    """As gte-Qwen2's and Qwen3-Embedding's encoders do; without sentence_ids there would be no sentences."""
    model = HMDEForSequenceClassification.from_sentence_encoder(str(labse), sentence_pooling="mean", num_labels=2)
    model.config.start_token_id = None
    tokenizer = HMDETokenizer.from_sentence_encoder(str(labse))
    expected = [
        model.config.id2label[int(model.eval()(**tokenizer(text, return_tensors="pt")).logits.argmax())]
        for text in documents
    ]
    assert predict(model, tokenizer, documents, "en") == expected


def test_the_language_of_a_file_reaches_the_sentence_splitter(labse: Path, tokenizer: HMDETokenizer) -> None:
    text = "Am 3. Oktober sah der Hund die Katze."  # only German rules read a day and its month
    classifier = made_to_tell_apart(
        labse, *(tokenizer(text, language=language, return_tensors="pt") for language in ("en", "de"))
    )
    assert predict(classifier, tokenizer, [text], "en") == ["cats"]
    assert predict(classifier, tokenizer, [text], "de") == ["dogs"]


@pytest.mark.parametrize("part", ["en.dev.tsv", "fr.test.tsv"])
def test_a_label_that_train_does_not_have_is_named_with_its_file(recipe: dict[str, Any], part: str) -> None:
    write_texts(Path(recipe["classification"]["topics"]["data"]) / part, ("cats", CATS), ("birds", "le chat"))
    with pytest.raises(ValueError, match=rf"{part} has the label 'birds', which .*en.train.tsv does not know: .*cats"):
        evaluated(recipe)
    assert not Path(recipe["output"]).exists()


def test_training_documents_of_one_label_are_refused(recipe: dict[str, Any]) -> None:
    for part in ("train", "dev", "test"):
        write_texts(Path(recipe["classification"]["topics"]["data"]) / f"en.{part}.tsv", ("cats", CATS))
    with pytest.raises(ValueError, match=r"en\.train\.tsv has no label but 'cats'; there is nothing to tell apart"):
        evaluated(recipe)


def test_a_label_that_a_classifier_does_not_have_is_named_with_its_file(recipe: dict[str, Any], saved: Path) -> None:
    task = recipe["classification"]["topics"] | {"finetuned": {"hmde": [str(saved)]}}
    for part in ("en.train", "en.dev", "fr.test"):
        write_texts(Path(task["data"]) / f"{part}.tsv", ("cats", CATS), ("birds", "le chat"))
    write_texts(Path(task["data"]) / "en.test.tsv", ("cats", CATS))
    with pytest.raises(ValueError, match=r"fr.test.tsv has the label 'birds', which the model hmde does not know"):
        evaluated(recipe | {"classification": {"topics": task}})
    assert not Path(recipe["output"]).exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_languages": ["en", "ru"]}, "ru.test.tsv is missing"),
        ({"test_languages": ["en", "deu"]}, "language 'deu' is written 'de' here"),
        ({"train_languages": ["fr"]}, "fr.train.tsv is missing"),
        ({"test_languages": []}, "test_languages is empty"),
        ({"train_languages": []}, "train_languages is empty"),
        ({"finetuned": {"hmde": ["nowhere"]}}, "hmde: nowhere does not open"),
        ({"finetuned": {"hmde": []}}, "finetuned has no model of hmde; name at least one run"),
        ({"finetuned": {"../hmde": ["nowhere"]}}, "finetuned '../hmde' names files"),
        ({"test_language": "en"}, "test_language"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    recipe: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    recipe["classification"]["topics"] |= change
    with pytest.raises(ValueError, match=message):
        evaluated(recipe)
    assert not Path(recipe["output"]).exists()
