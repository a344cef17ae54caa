"""Evaluations of sentence encoders: data as they are published, through the whole command, to numbers worked out by
hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, BertForSequenceClassification

from evaluation.tasks.classification import tokenized
from replications.datasets import europarl
from replications.evaluate import main
from replications.translation_search import SentenceSystem
from tests.evaluation.running import evaluated
from tests.paths import written
from tests.pretraining import as_arguments
from training import finetune

pytestmark = pytest.mark.slow

BERTS_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]
TATOEBA, EUROPARL, XNLI = (f"replications.datasets.{name}" for name in ("tatoeba", "europarl", "xnli"))
CAT, DOG, MAT = "The cat sat on the mat.", "Did the dog see it?", "It was warm there!"


def run_main(folder: Path, **tasks: Any) -> dict[str, Any]:
    recipe = {"output": str(folder / "out"), "systems": {"bm25": {"kind": "bm25"}}} | tasks
    return evaluated(recipe, command=main)["tasks"]


def accuracies(result: dict[str, Any], measure: str) -> dict[str, float]:
    return {name: scores[measure] for name, scores in (result["rows"] | result["averages"]).items()}


# --- translations ----------------------------------------------------------------------------------------------------


def test_translations_are_found_as_often_as_counted_by_hand(
    tmp_path: Path, labse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence of one language finds the same text in the other. Tatoeba: one of three is its translation. Europarl:
    the sentences are in the same order on both sides, but for two that are exchanged and among the three sought."""
    for language, texts in (("deu", (CAT, DOG, MAT)), ("eng", (CAT, MAT, DOG))):
        written(tmp_path / "tatoeba" / f"tatoeba.deu-eng.{language}", "".join(f"{text}\n" for text in texts))
    for language in ("fra", "eng"):
        written(tmp_path / "tatoeba" / f"tatoeba.fra-eng.{language}", f"{CAT}\n{DOG}\n")
    monkeypatch.setattr(europarl, "QUERIES", 3)
    monkeypatch.setattr(europarl, "SENTENCES", 3)
    for language, texts in (("de", (CAT, DOG, MAT)), ("en", (CAT, MAT, DOG))):
        written(tmp_path / "europarl" / f"europarl-v7.de-en.{language}", "".join(f"{text}\n" for text in texts))
    task = {"measure": "P@1"}
    found = run_main(
        tmp_path,
        systems={"middle": {"kind": "first", "model": str(labse), "pooling": "mean", "sentence_layer": 1}},
        translation_search={
            "tatoeba": task | {
                "format": TATOEBA, "data": str(tmp_path / "tatoeba"), "pairs": ["de-en", "en-de", "fr-en"],
                "training_languages": ["en", "fr"],
            },
            "europarl": task | {"format": EUROPARL, "data": str(tmp_path / "europarl"), "pairs": ["de-en", "en-de"]},
        },
    )  # fmt: skip
    third = pytest.approx(1 / 3)
    assert accuracies(found["tatoeba"]["middle"], "P@1") == {
        "de-en": third, "en-de": third, "fr-en": 1.0, "average": pytest.approx(5 / 9),
        "average, training languages": 1.0, "average, held-out languages": third,
    }  # fmt: skip
    assert accuracies(found["europarl"]["middle"], "P@1") == {"de-en": third, "en-de": third, "average": third}


def test_sentences_are_read_as_queries_on_both_sides() -> None:
    class Queries:
        def encode_queries(self, queries: list[str]) -> list[str]:
            return [f"query: {query}" for query in queries]

    system = SentenceSystem(Queries())
    assert system.encode_documents([CAT], "en") == system.encode_queries([CAT]) == [f"query: {CAT}"]


# --- natural language inference --------------------------------------------------------------------------------------

XNLI_COLUMNS = (
    "language\tgold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1"
    "\tsentence2\tpromptID\tpairID\tgenre\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tsentence1_tokenized"
    "\tsentence2_tokenized\tmatch\n"
)


def xnli_row(language: str, label: str, premise: str, hypothesis: str) -> str:
    return (
        f"{language}\t{label}\t\t\t\t\t{premise}\t{hypothesis}\t1\t1\tfacetoface\t{label}\t{label}\t{label}\t{label}"
        f"\t{label}\t{premise}\t{hypothesis}\tTrue\n"
    )


@pytest.fixture
def xnli(tmp_path: Path) -> Path:
    """In English one of three test pairs is an entailment, in French two of four. One has a lone quotation mark."""
    tests = {"en": ["entailment", "neutral", "contradiction"], "fr": ["entailment", "entailment", "neutral", "neutral"]}
    for part in ("dev", "test"):
        rows = [
            xnli_row(language, label, f'"{CAT}', DOG if label == "neutral" else MAT)
            for language, labels in tests.items()
            for label in labels
        ]
        written(tmp_path / "xnli" / "XNLI-1.0" / f"xnli.{part}.tsv", XNLI_COLUMNS + "".join(rows))
    for language in tests:
        rows = [f'"{CAT}\t{DOG}\tneutral\n', f"{CAT}\t{MAT}\tentailment\n", f"{MAT}\t{DOG}\tcontradictory\n"]
        name = f"multinli.train.{language}.tsv"
        written(tmp_path / "xnli" / "XNLI-MT-1.0" / "multinli" / name, "premise\thypo\tlabel\n" + "".join(rows))
    return tmp_path / "xnli"


def test_a_classifier_of_entailments_has_the_accuracies_counted_by_hand(
    xnli: Path, tmp_path: Path, labse: Path
) -> None:
    model = BertForSequenceClassification.from_pretrained(labse, num_labels=3)
    model.config.id2label = {0: "contradiction", 1: "entailment", 2: "neutral"}
    model.config.label2id = {label: index for index, label in model.config.id2label.items()}
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([0.0, 1.0, 0.0]))
    model.save_pretrained(tmp_path / "entailment")
    AutoTokenizer.from_pretrained(labse).save_pretrained(tmp_path / "entailment")
    task = {
        "format": XNLI, "data": str(xnli), "text_pairs": True, "train_languages": [], "test_languages": ["en", "fr"],
        "finetuned": {"all": [str(tmp_path / "entailment")]},
    }  # fmt: skip
    found = run_main(
        tmp_path,
        systems={"first": {"kind": "first", "model": str(labse), "pooling": "mean"}},
        classification={"xnli": task | {"finetuned_on": ["en"]}, "translated": task | {"finetuned_on": ["en", "fr"]}},
    )
    assert {*found} == {"xnli-finetuned", "translated-finetuned"}  # there are no frozen vectors of pairs
    third, gap = pytest.approx(1 / 3), pytest.approx(1 / 3 - 1 / 2)
    mean = pytest.approx(5 / 12)
    assert accuracies(found["xnli-finetuned"]["all"], "accuracy") == {
        "en-en": third, "en-fr": 0.5, "average": mean, "average, same language": third,
        "average, across languages": 0.5, "transfer gap": gap,
    }  # fmt: skip
    assert accuracies(found["translated-finetuned"]["all"], "accuracy") == {
        "all-en": third, "all-fr": 0.5, "average": mean, "average, same language": mean
    }  # fmt: skip
    assert found["translated-finetuned"]["all"]["protocol"] == "fine-tuned on en, fr, 1 run"


@pytest.mark.parametrize("languages", ['["en"]', '["en", "fr"]'])
def test_pairs_are_fine_tuned_from_the_published_files(xnli: Path, tmp_path: Path, labse: Path, languages: str) -> None:
    options = {
        "model": labse, "data": xnli, "format": XNLI, "text_pairs": "true", "output": tmp_path / "model",
        "train_languages": languages, "test_languages": '["fr"]', "trainer.num_train_epochs": 2,
        "trainer.warmup_steps": 0, "trainer.gradient_accumulation_steps": 1, "trainer.eval_strategy": "steps",
        "trainer.eval_steps": 1, "trainer.save_strategy": "steps", "trainer.save_steps": 1,
        "trainer.metric_for_best_model": "accuracy",
    }  # fmt: skip
    finetune.main(as_arguments(options))
    results = json.loads((tmp_path / "model" / "results.json").read_text(encoding="utf-8"))
    devs = {f"{language}.dev" for language in json.loads(languages)}
    assert {*results["scores"]} >= devs | {"fr.test"}
    assert len(results["epochs"]) == (2 if languages == '["en"]' else 4)  # an evaluation a step, of 3 or 6 pairs
    (data,) = (tmp_path / "model-training").glob("data-*")
    lines = (data / "en.train.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == f'neutral\t"{CAT}\t{DOG}'
    assert lines[2] == f"contradiction\t{MAT}\t{DOG}"
    model = BertForSequenceClassification.from_pretrained(tmp_path / "model")
    assert {*model.config.label2id} == {"contradiction", "entailment", "neutral"}


def test_a_pair_is_read_as_the_encoders_own_tokenizer_reads_two_texts(labse: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(labse, model_input_names=BERTS_INPUTS)
    found = tokenized(tokenizer, [f"{CAT}\t{DOG}"], "en", pairs=True)
    expected = tokenizer(CAT, DOG)
    assert found == {name: [expected[name]] for name in ("input_ids", "token_type_ids")}
    assert 1 in found["token_type_ids"][0]


def test_what_is_no_pair_is_named(xnli: Path, tmp_path: Path, labse: Path) -> None:
    for part in ("train", "dev"):
        written(tmp_path / "data" / f"en.{part}.tsv", f"a\t{CAT}\t{DOG}\nb\t{CAT}\n")
    options = {"model": labse, "data": tmp_path / "data", "text_pairs": "true", "output": tmp_path / "model"}
    with pytest.raises(ValueError, match=r"en.train.tsv, line 2: is of another form; write label TAB text TAB text"):
        finetune.main(as_arguments(options))
    task = {
        "data": str(xnli),
        "format": XNLI,
        "test_languages": ["th"],
        "train_languages": [],
        "finetuned_on": ["en"],
    }
    with pytest.raises(ValueError, match=r"xnli.test.tsv has no row in language 'th'"):
        run_main(tmp_path, classification={"xnli": task})
