"""Attribution: is the sentence that answers a question the one to which a system ascribes the match?

    python -m benchmarks.attribution --config configuration/benchmarks/attribution.yaml [--key value ...]

For each question to a paragraph that holds its answer, the sentences of the paragraph are ranked twice: by their
contribution to the document embedding's cosine, and by their own cosine with the question (late interaction, or, for
the kind `sentences`, plain similarity of the sentence encoder). Beside that stands chance, and how well the two ways to
score a whole paragraph find the paragraph among all. Writes

    results.json     all measures by system and pair, with recipe and environment
    results.md       a table a measure: one row a pair, one column a system and scoring
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import hmde.common.threads

import numpy as np
import torch

from benchmarks.measure import write_results
from evaluation.datasets.languages import languages_of
from evaluation.datasets.lareqa import read_paragraphs
from evaluation.recipes import SystemOptions
from evaluation.systems import check_systems, load_system
from evaluation.systems.hmde import HMDESystem
from evaluation.tables import Scores, Table
from hmde.common.command_line import options_from, run
from hmde.common.device import Dtype, dtype_of
from modeling_hmde import DocumentSentences, Explanation, score_sentences
from modeling_hmde.attribution_hmde import Scoring

# Share of questions whose answer stands in the first, or in the first three, of the ranked sentences; mean reciprocal
# rank of the paragraph among all paragraphs.
MEASURES = ("answer first", "answer in first three", "paragraph MRR")


@dataclass
class SentenceSystemOptions(SystemOptions):
    """A system of a kind that has sentences."""

    kind: Literal["hmde", "sentences"]


@dataclass
class AttributionRecipe:
    """A comparison of systems by the sentences they single out.

    Args:
        data: folder of `<language>.json` in SQuAD's format, paragraphs and ids the same in all languages: XQuAD, or
            XQuAD-R of LAReQA.
        pairs: `<question language>-<paragraph language>`, such as en-de.
        systems: by name, each with its `kind`, hmde or sentences, and the options of that kind; see
            evaluation/registry.py.
        output: folder to write. Files of an earlier evaluation there are replaced.
        dtype: float32, bfloat16, or auto: bfloat16 where the CPU or the GPU has native support for it.
    """

    data: str
    pairs: list[str]
    systems: dict[str, SentenceSystemOptions]
    output: str
    dtype: Dtype = "auto"


@dataclass
class Question:
    """A question in one language and its answers in a paragraph of another.

    Args:
        text: the question.
        paragraph: index of the paragraph in its file.
        answers: where each answer begins, in characters of the paragraph.
    """

    text: str
    paragraph: int
    answers: list[int]


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(AttributionRecipe, argv)
    questions = {pair: read_questions(Path(recipe.data), pair) for pair in recipe.pairs}
    check_systems(recipe.systems)
    columns: dict[str, Scores] = {}
    for name, options in recipe.systems.items():
        system = load_system(options, dtype_of(recipe.dtype))
        for pair, (asked, paragraphs) in questions.items():
            for scoring in get_args(Scoring):
                documents = system.model.prepare_sentences(
                    paragraphs, system.tokenizer, language=languages_of(pair)[1], scoring=scoring
                )
                columns.setdefault(f"{name}, {scoring}", {})[pair] = evaluate(system, asked, documents)
            # Tokenizers divide a paragraph differently, so each system has a chance of its own.
            columns.setdefault(f"{name}, chance", {})[pair] = chance(asked, documents)
    tables = [
        Table(
            f"{measure} on {Path(recipe.data).name}",
            "questions-paragraphs",
            {name: {pair: scores[measure] for pair, scores in rows.items()} for name, rows in columns.items()},
        )
        for measure in MEASURES
    ]
    write_results(recipe, "\n".join(table.to_markdown() for table in tables), systems=columns)


def read_questions(folder: Path, pair: str) -> tuple[list[Question], list[str]]:
    """The questions of one language to paragraphs of another, and all these paragraphs.

    Raises:
        ValueError: a file is missing or not in SQuAD's format, or no question has an answer.
    """
    question_language, paragraph_language = languages_of(pair)
    asked = read_paragraphs(folder / f"{question_language}.json")
    texts = {name: text for paragraph in asked for name, text, _ in paragraph.questions}
    paragraphs = read_paragraphs(folder / f"{paragraph_language}.json")
    questions = [
        Question(texts[name], index, answers)
        for index, paragraph in enumerate(paragraphs)
        for name, _, answers in paragraph.questions
        if answers and name in texts
    ]
    if not questions:
        raise ValueError(
            f"no question of {question_language}.json has an answer in {paragraph_language}.json of {folder}; check "
            "that the ids of the two agree"
        )
    return questions, [paragraph.text for paragraph in paragraphs]


def evaluate(
    system: HMDESystem, questions: Sequence[Question], documents: Sequence[DocumentSentences]
) -> dict[str, float]:
    """The measures, and the number of `questions` that those of sentences are means over.

    Args:
        system: that encoded the documents.
        documents: the sentences of each paragraph. A paragraph of a single sentence leaves nothing to rank; questions
            to it count for `paragraph MRR` only.
    """
    queries = torch.from_numpy(system.encode_queries([question.text for question in questions]))
    ranks, reciprocals = [], []
    for query, question in zip(queries, questions):
        explanations = [score_sentences(query, document) for document in documents]
        own = explanations[question.paragraph]
        better = sum(explanation.score > own.score for explanation in explanations)
        reciprocals.append(1 / (1 + better))
        if len(own.sentences) > 1:
            ranks.append(rank_of_answer(own, question.answers))
    return {
        "answer first": float(np.mean([rank == 1 for rank in ranks])),
        "answer in first three": float(np.mean([rank <= 3 for rank in ranks])),
        "paragraph MRR": float(np.mean(reciprocals)),
        "questions": len(ranks),
    }


def rank_of_answer(explanation: Explanation, answers: Sequence[int]) -> float:
    """The rank, from 1, of the first sentence in which an answer begins; infinity where it is in none that was read."""
    for rank, (begin, end, _) in enumerate(explanation.sentences, start=1):
        if any(begin <= answer < end for answer in answers):
            return rank
    return float("inf")


def chance(questions: Sequence[Question], documents: Sequence[DocumentSentences]) -> dict[str, float]:
    """What the measures are expected to be where sentences and paragraphs stand in random order."""
    counts = np.array([len(documents[question.paragraph].spans) for question in questions])
    counts = counts[counts > 1]
    return {
        "answer first": float(np.mean(1 / counts)),
        "answer in first three": float(np.mean(np.minimum(3 / counts, 1))),
        "paragraph MRR": float(np.mean(1 / np.arange(1, len(documents) + 1))),
        "questions": len(counts),
    }


if __name__ == "__main__":
    run(main)
