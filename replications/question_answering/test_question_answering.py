"""Answers across languages: MLQA's scores worked out by hand, and fine-tuning on SQuAD."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoTokenizer, BertForQuestionAnswering

from replications.evaluate import main
from replications.question_answering import evaluation as questions
from replications.question_answering import finetune as finetune_questions
from replications.question_answering.evaluation import Question, answer, f1, measure, normalized, read_questions

pytestmark = pytest.mark.usefixtures("fresh_accelerator")

CAT, DOG, MAT = "The cat sat on the mat.", "Did the dog see it?", "It was warm there!"


def written(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def run_main(folder: Path, **tasks: Any) -> dict[str, Any]:
    recipe = {"output": str(folder / "out"), "systems": {"bm25": {"kind": "bm25"}}} | tasks
    main(["--config", str(written(folder / "recipe.yaml", yaml.safe_dump(recipe)))])
    return json.loads((folder / "out" / "results.json").read_text(encoding="utf-8"))["tasks"]


def accuracies(result: dict[str, Any], measure: str) -> dict[str, float]:
    return {name: scores[measure] for name, scores in (result["rows"] | result["averages"]).items()}


def squad(*asked: tuple[str, str, str]) -> str:
    """A file in the format of SQuAD 1.1: contexts, questions and answers."""
    paragraphs = [
        {
            "context": context,
            "qas": [
                {"id": f"q{index}", "question": question,
                 "answers": [{"text": text, "answer_start": context.index(text)}]}
            ],
        }
        for index, (context, question, text) in enumerate(asked)
    ]  # fmt: skip
    return json.dumps({"version": "1.0", "data": [{"title": "animals", "paragraphs": paragraphs}]}, ensure_ascii=False)


@pytest.fixture
def mlqa(tmp_path: Path) -> Path:
    for language, asked in (
        ("en", [(CAT, "What sat?", "The cat"), (DOG, "Did it?", "Did")]),
        ("de", [("Der Hund sah die Katze.", "Wer?", "Hund"), ("Sie lag.", "Wer?", "Sie")]),
        ("zh", [("猫在垫子上", "谁？", "猫在垫子"), ("狗看着它", "谁？", "狗")]),
    ):
        name = f"test-context-{language}-question-{language}.json"
        written(tmp_path / "MLQA_V1" / "test" / name, squad(*asked))
    return tmp_path / "MLQA_V1"


def test_a_model_that_answers_with_the_first_word_has_the_scores_worked_out_by_hand(
    mlqa: Path, tmp_path: Path, labse: Path
) -> None:
    model = BertForQuestionAnswering.from_pretrained(labse)
    with torch.no_grad():
        model.qa_outputs.weight.zero_()  # all tokens are equal, so the first is taken
    model.save_pretrained(tmp_path / "first-word")
    AutoTokenizer.from_pretrained(labse).save_pretrained(tmp_path / "first-word")
    finetuned = {"one": [str(tmp_path / "first-word")], "two": [str(tmp_path / "first-word")] * 2}
    task = {"data": str(mlqa), "languages": ["en", "de", "zh"], "finetuned": finetuned}
    found = run_main(tmp_path, questions={"mlqa": task})["mlqa"]
    # "The", an article, for "The cat": nothing; "Did": right. "Der", an article, for "Hund": nothing; "Sie": right.
    # "猫" for four characters: precision 1, recall 1/4, F1 2/5; "狗": right.
    assert accuracies(found["one"], "f1") == {
        "en": 0.5, "de": 0.5, "zh": 0.7, "average": pytest.approx(1.7 / 3), "average without en": 0.6,
        "transfer gap": pytest.approx(-0.1),
    }  # fmt: skip
    assert accuracies(found["one"], "exact_match") == {
        "en": 0.5, "de": 0.5, "zh": 0.5, "average": 0.5, "average without en": 0.5, "transfer gap": 0.0
    }  # fmt: skip
    assert found["one"]["protocol"] == "fine-tuned on English questions, 1 run"
    assert found["two"]["rows"]["zh"] == found["one"]["rows"]["zh"] | {"f1_sd": 0.0, "exact_match_sd": 0.0}
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "| zh | 0.700 | 0.700 |" in report


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("The “cat’s” mat, a dog!", "en", "cats mat dog"),
        ("Die Katze des Hundes", "de", "katze hundes"),
        ("¿Los gatos?", "es", "gatos"),
        ("cái mũ của tôi", "vi", "mũ tôi"),
        ("البيت الكبير", "ar", "بيت كبير"),
        ("बिल्ली है।", "hi", "बिल्ली है"),
        ("猫，2019年 the cat", "zh", "猫 2019 年 the cat"),
        ("a+b", "de", "ab"),
    ],
)
def test_answers_are_normalised_as_by_mlqas_program(text: str, language: str, expected: str) -> None:
    assert normalized(text, language) == expected


def test_an_answer_counts_as_the_best_of_those_that_people_gave() -> None:
    asked = [Question("q", "?", "", [("warm mat", 0), ("a soft warm mat", 0)])]
    assert measure(asked, ["the soft mat"], "en") == {"f1": [pytest.approx(0.8)], "exact_match": [0.0]}
    assert f1("", "the", "en") == 0.0


def test_the_best_part_of_all_windows_equals_a_search_through_every_part(
    labse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "WINDOW", 20)
    monkeypatch.setattr(questions, "SHARED", 5)
    monkeypatch.setattr(questions, "LONGEST_ANSWER", 3)
    tokenizer = AutoTokenizer.from_pretrained(
        labse, model_input_names=["input_ids", "token_type_ids", "attention_mask"]
    )
    torch.manual_seed(0)
    model = BertForQuestionAnswering.from_pretrained(labse).eval()
    asked = [Question("a", "Did it?", f"{CAT} {DOG} {MAT} " * 3, []), Question("b", "What sat?", CAT, [])]
    expected = []
    for question in asked:
        row = tokenizer(question.text, question.context, return_offsets_mapping=True)
        first = row.sequence_ids().index(1)
        tokens, offsets = row["input_ids"][first:-1], row["offset_mapping"][first:-1]
        room = 20 - first - 1
        candidates = []
        for begin in range(0, len(tokens), room - 5):
            part = tokens[begin : begin + room]
            ids = [*row["input_ids"][:first], *part, row["input_ids"][-1]]
            kinds = [0] * first + [1] * (len(part) + 1)
            with torch.no_grad():
                output = model(torch.tensor([ids]), token_type_ids=torch.tensor([kinds]))
            for start in range(len(part)):
                for end in range(start, min(start + 3, len(part))):
                    score = float(output.start_logits[0, first + start] + output.end_logits[0, first + end])
                    candidates.append((score, offsets[begin + start][0], offsets[begin + end][1]))
            if begin + room >= len(tokens):
                break
        _, begin, end = max(candidates)
        expected.append(question.context[begin:end])
    assert answer(model, tokenizer, asked) == expected


def test_a_model_learns_where_answers_stand(tmp_path: Path, labse: Path) -> None:
    asked = [(f"{CAT} {DOG} {MAT}", "Did it?", "dog"), (f"{MAT} {CAT}", "What sat?", "cat")]
    for part in ("train", "dev"):
        written(tmp_path / "squad" / f"{part}-v1.1.json", squad(*asked * (8 if part == "train" else 1)))
    options = {
        "model": labse, "data": tmp_path / "squad", "output": tmp_path / "model", "trainer.num_train_epochs": 8,
        "trainer.learning_rate": 5e-3, "trainer.per_device_train_batch_size": 4,
        "trainer.gradient_accumulation_steps": 1,
    }  # fmt: skip
    finetune_questions.main([part for name, value in options.items() for part in (f"--{name}", str(value))])
    results = json.loads((tmp_path / "model" / "results.json").read_text(encoding="utf-8"))
    assert results["scores"] == {"f1": 1.0, "exact_match": 1.0}
    assert "F1 of 1.000" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


def test_windows_without_the_whole_answer_point_at_the_first_token(
    labse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "WINDOW", 14)
    monkeypatch.setattr(questions, "SHARED", 2)
    tokenizer = AutoTokenizer.from_pretrained(labse)
    context = f"{CAT} {DOG}"
    begin = context.index("dog see")
    table = finetune_questions.encode([Question("a", "it?", context, [("dog see", begin)])], tokenizer)
    pointed = [tokenizer.decode(row["input_ids"][row["start_positions"] : row["end_positions"] + 1]) for row in table]
    assert "dog see" in pointed
    assert {*pointed} == {"dog see", "[CLS]"}


def test_bad_questions_are_refused_with_their_file(tmp_path: Path, mlqa: Path) -> None:
    broken = json.loads(squad((CAT, "What sat?", "cat")))
    broken["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] = 5
    for content, message in (
        (json.dumps(broken), "an answer of question q0 does not stand in its text"),
        ('{"data": [{}]}', r"is not in the format of SQuAD 1.1: KeyError\('paragraphs'\)"),
        ('{"data": []}', "has no question"),
    ):
        with pytest.raises(ValueError, match=message):
            read_questions(written(tmp_path / "x.json", content))
    with pytest.raises(ValueError, match=r"test-context-vi-question-vi.json is missing"):
        run_main(tmp_path, questions={"mlqa": {"data": str(mlqa), "languages": ["vi"], "finetuned": {"x": []}}})
