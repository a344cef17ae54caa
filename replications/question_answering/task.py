"""Answers to questions across languages: a model learns from English where in a text the answer to a question stands,
and is tested on questions and texts in other languages (InfoXLM, section 4.2).

F1 and exact match with the normalisation of MLQA's own program, which knows the articles of its seven languages and
takes Chinese character by character. The metric `squad` of the library evaluate is no part of that library but a
program on the Hub, which is not there without a network, and it knows the articles and punctuation of English only.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import (
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    BatchEncoding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from evaluation.tables import Scores, averages
from hmde.common.device import device
from hmde.common.progress import progress_bar
from hmde.common.saved_models import model_type_of
from modeling_hmde.packing_hmde import padded_batches
from modeling_hmde.sentence_reading_hmde import MAX_TOKENS_PER_BUCKET
from replications.question_answering.options import QuestionTask

MEASURES = ("f1", "exact_match")

# A text is read in windows of so many tokens, question included, the text of two sharing so many.
WINDOW, SHARED = 384, 128
LONGEST_ANSWER = 30  # tokens

ARTICLES = {  # of each language of MLQA
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    "ar": r"\sال^|ال",
    "hi": None,
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "zh": None,
}


class Question(NamedTuple):
    """A question, the text that has its answer, and the answers that people gave, each with its first character."""

    id: str
    text: str
    context: str
    answers: list[tuple[str, int]]


def read_questions(path: Path) -> list[Question]:
    """The questions of a file in the format of SQuAD 1.1, which MLQA has too.

    Raises:
        ValueError: the file is missing or malformed, or an answer does not stand where the file says.
    """
    if not path.is_file():
        raise ValueError(f"{path} is missing; github.com/facebookresearch/MLQA has the files of a task")
    questions = []
    try:
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    answers = [(answer["text"], answer["answer_start"]) for answer in asked["answers"]]
                    questions.append(Question(asked["id"], asked["question"], paragraph["context"], answers))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not in the format of SQuAD 1.1: {error!r}; take the file as published") from None
    for question in questions:
        stands = [question.context[start : start + len(text)] == text for text, start in question.answers]
        if not stands or not all(stands):
            raise ValueError(f"{path}: an answer of question {question.id} does not stand in its text; take it anew")
    if not questions:
        raise ValueError(f"{path} has no question; take it as published")
    return questions


def read(task: QuestionTask) -> dict[str, list[Question]]:
    """The questions of MLQA by language.

    Raises:
        ValueError: a file is missing or malformed, or there is no such model.
    """
    for name, models in task.finetuned.items():
        for model in models:
            model_type_of(name, model)
    return {
        language: read_questions(Path(task.data) / "test" / f"test-context-{language}-question-{language}.json")
        for language in ARTICLES
    }


def evaluate_models(
    models: Sequence[str],
    task: QuestionTask,
    questions: dict[str, list[Question]],
    dtype: torch.dtype,
    bar: str = "",
) -> dict[str, Any]:
    """Everything that is reported of a model that was trained to answer, once or several times. The scores of several
    runs are means, with their standard deviations."""
    runs: list[dict[str, dict[str, list[float]]]] = []
    with progress_bar(bar, len(models), unit="model") as progress:
        for folder in models:
            model = AutoModelForQuestionAnswering.from_pretrained(folder, dtype=dtype).to(device()).eval()
            tokenizer = AutoTokenizer.from_pretrained(folder)
            runs.append(
                {
                    language: measure(asked, answer(model, tokenizer, asked), language)
                    for language, asked in questions.items()
                }
            )
            progress.update()
    scores: Scores = {}
    per_item = {}
    for language, asked in questions.items():
        values = {measure: np.array([run[language][measure] for run in runs]) for measure in MEASURES}
        scores[language] = {measure: float(found.mean()) for measure, found in values.items()}
        if len(models) > 1:
            deviations = {measure: found.mean(axis=1).std(ddof=1) for measure, found in values.items()}
            scores[language] |= {f"{measure}_sd": float(deviation) for measure, deviation in deviations.items()}
        scores[language]["questions"] = len(asked)
        per_item[language] = {
            measure: {question.id: float(value) for question, value in zip(asked, found.mean(axis=0))}
            for measure, found in values.items()
        }
    others = [language for language in scores if language != "en"]
    means = averages(scores, {"average": list(scores), "average without en": others}, MEASURES)
    means["transfer gap"] = {
        measure: scores["en"][measure] - means["average without en"][measure] for measure in MEASURES
    }
    return {
        "task_type": "question-answering",
        "measure": task.measure,
        "protocol": f"fine-tuned on English questions, {len(models)} run{'s' * (len(models) > 1)}",
        "rows": scores,
        "averages": means,
        "per_item": per_item,
    }


def windows_of(tokenizer: PreTrainedTokenizerBase, questions: Sequence[Question]) -> BatchEncoding:
    """Questions and texts in rows, a text that is too long in several."""
    limit = min(WINDOW, tokenizer.model_max_length)
    return tokenizer(
        [question.text.strip() for question in questions],
        [question.context for question in questions],
        truncation="only_second",
        max_length=limit,
        stride=min(SHARED, limit // 3),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )


@torch.inference_mode()
def answer(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, questions: Sequence[Question]) -> list[str]:
    """The answer to each question: of all windows of its text, the part with the highest logits of start and end; of
    equal ones the first."""
    encoded = windows_of(tokenizer, questions)
    rows = {name: encoded[name] for name in ("input_ids", "token_type_ids") if name in encoded}
    answers: dict[int, tuple[float, int, str]] = {}
    for batch, inputs in padded_batches(tokenizer, rows, MAX_TOKENS_PER_BUCKET):
        output = model(**inputs.to(model.device))
        for index, starts, ends in zip(batch.tolist(), output.start_logits.float(), output.end_logits.float()):
            question = encoded["overflow_to_sample_mapping"][index]
            tokens = [place for place, sequence in enumerate(encoded.sequence_ids(index)) if sequence == 1]
            first, last = tokens[0], tokens[-1] + 1
            sums = starts[first:last, None] + ends[None, first:last]
            possible = torch.ones_like(sums, dtype=torch.bool).triu().tril(LONGEST_ANSWER - 1)
            best = int(sums.masked_fill(~possible, -torch.inf).argmax())
            offsets = encoded["offset_mapping"][index]
            begin, end = offsets[first + best // len(tokens)][0], offsets[first + best % len(tokens)][1]
            found = (float(sums.flatten()[best]), -index, questions[question].context[begin:end])
            answers[question] = max(answers.get(question, found), found)
    return [answers[index][2] for index in range(len(questions))]


def measure(questions: Sequence[Question], answers: Iterable[str], language: str) -> dict[str, list[float]]:
    """F1 and exact match of each answer with the best of those that people gave."""
    pairs = [([text for text, _ in question.answers], answer) for question, answer in zip(questions, answers)]
    return {
        "f1": [max(f1(answer, text, language) for text in texts) for texts, answer in pairs],
        "exact_match": [
            float(any(normalized(answer, language) == normalized(text, language) for text in texts))
            for texts, answer in pairs
        ],
    }


def f1(answer: str, truth: str, language: str) -> float:
    """F1 over the words that two answers share.

    >>> f1("The warm mat.", "a mat", "en")
    0.6666666666666666
    """
    words, true_words = (Counter(normalized(text, language).split()) for text in (answer, truth))
    shared = (words & true_words).total()
    return 2 * shared / (words.total() + true_words.total()) if shared else 0.0


def normalized(text: str, language: str) -> str:
    """In lower case, without punctuation and articles, with one space between words or Chinese characters.

    >>> normalized("The  cat's mat!", "en"), normalized("猫在 mat。", "zh")
    ('cats mat', '猫 在 mat')
    """
    text = "".join(character for character in text.lower() if not is_punctuation(character))
    articles = ARTICLES[language]
    if articles is not None:
        text = re.sub(articles, " ", text)
    if language == "zh":
        text = re.sub(r"([\u4e00-\u9fa5])", r" \1 ", text)
    return " ".join(text.split())


def is_punctuation(character: str) -> bool:
    return unicodedata.category(character).startswith("P") or character in "$+<=>^`|~"
