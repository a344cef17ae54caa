"""Zero-shot classification: the protocols `frozen` and `finetuned` on texts whose scores can be worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from transformers import BatchEncoding

from evaluation.classification import fit, main, predict
from modeling_hmde import HMDEForSequenceClassification, HMDETokenizer

CATS, DOGS = "the cat sat on the mat", "der hund"


def write_texts(path: Path, *lines: tuple[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{label}\t{text}\n" for label, text in lines), encoding="utf-8")


@pytest.fixture
def recipe(tmp_path: Path, labse: Path) -> dict[str, Any]:
    """Two texts, two labels. In French, one text has the other's label."""
    data = tmp_path / "data"
    write_texts(data / "en.train.tsv", ("cats", CATS), ("dogs", DOGS))
    write_texts(data / "en.dev.tsv", ("cats", CATS), ("dogs", DOGS))
    write_texts(data / "en.test.tsv", ("cats", CATS), ("dogs", DOGS))
    write_texts(data / "fr.test.tsv", ("cats", CATS), ("cats", CATS), ("dogs", DOGS), ("dogs", CATS))
    return {
        "data": str(data),
        "test_languages": ["en", "fr"],
        "output": str(tmp_path / "out"),
        "systems": {
            "base": {"kind": "first", "model": str(labse), "pooling": "mean"},
            "mean": {"kind": "sentences", "model": str(labse), "pooling": "mean"},
        },
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


def run_main(recipe: dict[str, Any], *arguments: str) -> dict[str, Any]:
    file = Path(recipe["output"]).with_name("recipe.yaml")
    file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    main(["--config", str(file), *arguments])
    return json.loads((Path(recipe["output"]) / "results.json").read_text(encoding="utf-8"))


ENGLISH = {"accuracy": 1.0, "macro_f1": 1.0, "documents": 2}
# Predicted cats, cats, dogs, cats. F1 of cats: precision 2/3, recall 1; of dogs: precision 1, recall 1/2.
FRENCH = {"accuracy": 0.75, "macro_f1": pytest.approx((0.8 + 2 / 3) / 2), "documents": 4}
AVERAGES = {
    "average": {"accuracy": 0.875, "macro_f1": pytest.approx((1 + (0.8 + 2 / 3) / 2) / 2)},
    "average without en": {"accuracy": 0.75, "macro_f1": pytest.approx((0.8 + 2 / 3) / 2)},
}


def test_the_frozen_protocol_gives_the_scores_worked_out_by_hand(recipe: dict[str, Any]) -> None:
    results = run_main(recipe)
    assert list(results["frozen"]) == ["base", "mean"]
    for system in results["frozen"].values():
        assert system["languages"] == {"en": ENGLISH, "fr": FRENCH}
        assert system["averages"] == AVERAGES
        assert (system["C"], system["documents"]) == (0.1, 10)
        assert system["document_seconds"] > 0
    assert "finetuned" not in results
    assert (Path(recipe["output"]) / "results.md").read_text(encoding="utf-8").splitlines() == [
        "accuracy on data, protocol frozen",
        "",
        "| test language | base | mean |",
        "|:---|---:|---:|",
        "| en | 1.000 | 1.000 |",
        "| fr | 0.750 | 0.750 |",
        "| average | 0.875 | 0.875 |",
        "| average without en | 0.750 | 0.750 |",
    ]


def test_the_finetuned_protocol_gives_the_scores_worked_out_by_hand(recipe: dict[str, Any], saved: Path) -> None:
    del recipe["systems"]
    for part in ("train", "dev"):  # nothing is learnt, so nothing is read
        (Path(recipe["data"]) / f"en.{part}.tsv").unlink()
    results = run_main(recipe, "--finetuned.hmde", str(saved))
    assert results["finetuned"]["hmde"]["languages"] == {"en": ENGLISH, "fr": FRENCH}
    assert results["finetuned"]["hmde"]["averages"] == AVERAGES
    assert "frozen" not in results


def test_each_protocol_has_a_table_that_names_it(recipe: dict[str, Any], saved: Path) -> None:
    run_main(recipe | {"finetuned": {"hmde": str(saved)}, "measure": "macro_f1", "dtype": "bfloat16"})
    table = (Path(recipe["output"]) / "results.md").read_text(encoding="utf-8").splitlines()
    titles = [line for line in table if line.startswith("macro_f1 on data, protocol ")]
    assert [title.split()[-1] for title in titles] == ["frozen", "finetuned"]
    assert table.count("| fr | 0.733 | 0.733 |") == 1
    assert table.count("| fr | 0.733 |") == 1


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


def test_the_language_of_a_file_reaches_the_sentence_splitter(labse: Path, tokenizer: HMDETokenizer) -> None:
    text = "Am 3. Oktober sah der Hund die Katze."  # only German rules read a day and its month
    classifier = made_to_tell_apart(
        labse, *(tokenizer(text, language=language, return_tensors="pt") for language in ("en", "de"))
    )
    assert predict(classifier, tokenizer, [text], "en") == ["cats"]
    assert predict(classifier, tokenizer, [text], "de") == ["dogs"]


def test_c_is_the_smallest_of_those_that_are_best_on_dev() -> None:
    near = np.array([[1.0, 0.0]] * 9 + [[0.8, 0.6]], dtype=np.float32)
    labels = ["many"] * 9 + ["few"]
    assert fit(near, labels, near[:1], labels[:1]).C == 0.1  # each is right
    chosen = fit(near, labels, near[-1:], labels[-1:])  # strong regularisation never predicts the rare label
    assert chosen.C > 0.1
    assert list(chosen.predict(near[-1:])) == ["few"]


@pytest.mark.parametrize("part", ["en.dev.tsv", "fr.test.tsv"])
def test_a_label_that_train_does_not_have_is_named_with_its_file(recipe: dict[str, Any], part: str) -> None:
    write_texts(Path(recipe["data"]) / part, ("cats", CATS), ("birds", "le chat"))
    with pytest.raises(ValueError, match=rf"{part} has the label 'birds', which .*en.train.tsv does not know: .*cats"):
        run_main(recipe)
    assert not Path(recipe["output"]).exists()


def test_a_label_that_a_classifier_does_not_have_is_named_with_its_file(recipe: dict[str, Any], saved: Path) -> None:
    write_texts(Path(recipe["data"]) / "fr.test.tsv", ("birds", "le chat"))
    with pytest.raises(ValueError, match=r"fr.test.tsv has the label 'birds', which the model hmde does not know"):
        run_main(recipe, "--finetuned.hmde", str(saved))
    assert not Path(recipe["output"]).exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_languages": ["en", "ru"]}, "ru.test.tsv is missing"),
        ({"train_language": "fr"}, "fr.train.tsv is missing"),
        ({"test_languages": []}, "test_languages is empty"),
        ({"systems": {}}, "systems and finetuned are both empty"),
        ({"finetuned": {"hmde": "nowhere"}}, "hmde: nowhere is no model folder"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    recipe: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run_main(recipe | change)
    assert not Path(recipe["output"]).exists()


def test_a_classifier_that_is_no_hmde_is_refused(recipe: dict[str, Any], labse: Path) -> None:
    with pytest.raises(ValueError, match=r"other: .*labse is no HMDE"):
        run_main(recipe, "--finetuned.other", str(labse))


def test_an_unknown_key_of_a_recipe_is_an_error(recipe: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_main(recipe | {"test_language": "en"})
    assert "test_language" in capsys.readouterr().err


def test_the_recipe_of_the_sample_reads_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[1])
    systems = "{none: {kind: first, pooling: mean, model: nowhere}}"
    with pytest.raises(ValueError, match="none: nowhere is no model folder"):  # the last thing that is checked
        main(["--config", "configuration/evaluate/sample-classification.yaml", "--systems", systems])
