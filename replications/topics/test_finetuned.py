"""Classifiers that were fine-tuned, tested on texts whose scores can be worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoTokenizer, BatchEncoding, BertForSequenceClassification

from modeling_hmde import HMDEForSequenceClassification, HMDETokenizer
from replications.evaluate import main
from replications.topics.finetuned import Classifier
from tests.evaluation.running import evaluated
from tests.evaluation.topics import AVERAGES, CATS, DOGS, ENGLISH, FRENCH, write_texts, write_topics


@pytest.fixture
def recipe(tmp_path: Path, saved: Path) -> dict[str, Any]:
    task = {"data": write_topics(tmp_path / "data"), "test_languages": ["en", "fr"], "models": {"hmde": str(saved)}}
    return {
        "output": str(tmp_path / "out"),
        "systems": {"bm25": {"kind": "bm25"}},
        "finetuned_classification": {"topics": task},
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


def test_the_scores_are_those_worked_out_by_hand(recipe: dict[str, Any]) -> None:
    found = evaluated(recipe, command=main)["tasks"]["topics"]["hmde"]
    assert found["rows"] == {"en-en": ENGLISH, "en-fr": FRENCH}
    assert found["averages"] == AVERAGES
    assert found["protocol"] == "fine-tuned on en"


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
    assert Classifier(model, AutoTokenizer.from_pretrained(tmp_path / "bert")).predict(texts, "en") == expected
    recipe["finetuned_classification"]["topics"]["models"] = {"bert": str(tmp_path / "bert")}
    assert list(evaluated(recipe, command=main)["tasks"]["topics"]) == ["bert"]


@pytest.mark.slow
def test_a_card_gets_the_results_of_its_own_model_and_their_task(
    recipe: dict[str, Any], saved: Path, labse: Path, tmp_path: Path
) -> None:
    folder, labels = tmp_path / "bert", {"id2label": {0: "cats", 1: "dogs"}, "label2id": {"cats": 0, "dogs": 1}}
    BertForSequenceClassification.from_pretrained(labse, **labels).save_pretrained(folder)
    AutoTokenizer.from_pretrained(labse).save_pretrained(folder)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n\n# A model\n", encoding="utf-8")
    recipe |= {"systems": {"bert": {"kind": "first", "model": str(folder), "pooling": "mean"}}, "model_cards": ["bert"]}
    task = recipe["finetuned_classification"]["topics"]
    recipe["classification"] = {"frozen": {name: task[name] for name in ("data", "test_languages")}}
    # The classifier of that name is another model first, then the very model of the system.
    for classifier, tasks in ((saved, {"frozen"}), (folder, {"frozen", "topics"})):
        task["models"] = {"bert": str(classifier)}
        results = evaluated(recipe, command=main)["tasks"]
        assert list(results["frozen"]["bert"]["models"]) == [str(folder)]
        assert list(results["topics"]["bert"]["models"]) == [str(classifier)]
        in_card = ModelCard.load(folder / "README.md").data.eval_results
        assert {one.dataset_type for one in in_card} == tasks
        assert {one.task_type for one in in_card} == {"text-classification"}


def test_predictions_equal_those_of_one_text_at_a_time(
    classifier: HMDEForSequenceClassification, tokenizer: HMDETokenizer, documents: list[str]
) -> None:
    texts = [CATS, *documents, DOGS, "", "hund " * 300]
    expected = [
        ["cats", "dogs"][int(classifier(**tokenizer(text, language="de", return_tensors="pt")).logits.argmax())]
        for text in texts
    ]
    assert set(expected) == {"cats", "dogs"}
    assert Classifier(classifier, tokenizer).predict(texts, "de") == expected


def test_a_classifier_whose_encoder_marks_no_start_reads_its_sentences(labse: Path, documents: list[str]) -> None:
    """As gte-Qwen2's and Qwen3-Embedding's encoders do; without sentence_ids there would be no sentences."""
    model = HMDEForSequenceClassification.from_sentence_encoder(str(labse), sentence_pooling="mean", num_labels=2)
    model.config.start_token_id = None
    tokenizer = HMDETokenizer.from_sentence_encoder(str(labse))
    expected = [
        model.config.id2label[int(model.eval()(**tokenizer(text, return_tensors="pt")).logits.argmax())]
        for text in documents
    ]
    assert Classifier(model, tokenizer).predict(documents, "en") == expected


def test_the_language_of_a_file_reaches_the_sentence_splitter(labse: Path, tokenizer: HMDETokenizer) -> None:
    text = "Am 3. Oktober sah der Hund die Katze."  # only German rules read a day and its month
    classifier = made_to_tell_apart(
        labse, *(tokenizer(text, language=language, return_tensors="pt") for language in ("en", "de"))
    )
    assert Classifier(classifier, tokenizer).predict([text], "en") == ["cats"]
    assert Classifier(classifier, tokenizer).predict([text], "de") == ["dogs"]


def test_a_label_that_a_classifier_does_not_have_is_named_with_its_file(recipe: dict[str, Any]) -> None:
    folder = Path(recipe["finetuned_classification"]["topics"]["data"])
    for part in ("en.train", "en.dev", "fr.test"):
        write_texts(folder / f"{part}.tsv", ("cats", CATS), ("birds", "le chat"))
    write_texts(folder / "en.test.tsv", ("cats", CATS))
    with pytest.raises(ValueError, match=r"fr.test.tsv has the label 'birds', which the model hmde does not know"):
        evaluated(recipe, command=main)
    assert not Path(recipe["output"]).exists()


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({"hmde": "nowhere"}, "system hmde: nowhere does not open"),
        ({"../hmde": "nowhere"}, "system '../hmde' names files"),
    ],
)
def test_bad_models_are_refused_before_anything_is_written(
    recipe: dict[str, Any], models: dict[str, str], message: str
) -> None:
    recipe["finetuned_classification"]["topics"]["models"] = models
    with pytest.raises(ValueError, match=message):
        evaluated(recipe, command=main)
    assert not Path(recipe["output"]).exists()


def test_a_classifier_is_no_system_of_other_tasks(recipe: dict[str, Any], saved: Path) -> None:
    recipe["systems"]["hmde"] = {"kind": "classifier", "model": str(saved)}
    with pytest.raises(ValueError, match="system hmde is a classifier; name it in models of a"):
        evaluated(recipe, command=main)
